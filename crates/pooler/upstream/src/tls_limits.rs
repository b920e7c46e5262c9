//! Versions, ciphers and curves of TLS by their names. Makes no connection.

use seam::TlsLimits;

/// A cipher suite: its number, its name at IANA and that of OpenSSL, and whether it is one of TLS 1.3.
struct Suite(u16, &'static str, &'static str, bool);

const SUITES: &[Suite] = &[
    Suite(0x1301, "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", true),
    Suite(0x1302, "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", true),
    Suite(0x1303, "TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256", true),
    Suite(0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256", false),
    Suite(0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384", false),
    Suite(0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256", false),
    Suite(0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384", false),
    Suite(0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305", false),
    Suite(0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", false),
];

/// A group for the exchange of keys: its number, and its names.
struct Group(u16, &'static [&'static str]);

const GROUPS: &[Group] = &[
    Group(0x001d, &["X25519"]),
    Group(0x0017, &["prime256v1", "secp256r1", "P-256"]),
    Group(0x0018, &["secp384r1", "P-384"]),
];

/// Takes a list of versions: `tlsv1.2`, `tlsv1.3`, or `secure` for both.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn allow_versions<'n>(limits: &mut TlsLimits, names: impl IntoIterator<Item = &'n str>) -> Result<(), String> {
    (limits.tls12, limits.tls13) = (false, false);
    for name in items(names) {
        match name.to_ascii_lowercase().as_str() {
            "secure" | "default" => (limits.tls12, limits.tls13) = (true, true),
            "tlsv1.2" => limits.tls12 = true,
            "tlsv1.3" => limits.tls13 = true,
            "tlsv1.0" | "tlsv1.1" | "all" | "legacy" => {
                return Err(format!("`{name}` is not available: Poolhouse has tlsv1.2 and tlsv1.3"));
            }
            _ => return Err(format!("there is no version `{name}`: write tlsv1.2, tlsv1.3 or secure")),
        }
    }
    if !limits.tls12 && !limits.tls13 { Err("no version of TLS is left".to_owned()) } else { Ok(()) }
}

/// Takes a list of cipher suites, by their names at IANA or at OpenSSL; `default` is all. A version of which none
/// is listed keeps all of its own.
///
/// # Errors
/// The one that is not available.
pub fn allow_ciphers<'n>(limits: &mut TlsLimits, names: impl IntoIterator<Item = &'n str>) -> Result<(), String> {
    let mut suites = Vec::new();
    for name in items(names) {
        if matches!(name, "default" | "secure" | "fast" | "normal") {
            suites.extend(SUITES.iter().map(|suite| suite.0));
            continue;
        }
        let known = |suite: &&Suite| suite.1.eq_ignore_ascii_case(name) || suite.2.eq_ignore_ascii_case(name);
        let suite = SUITES.iter().find(known).ok_or_else(|| {
            let all: Vec<&str> = SUITES.iter().map(|suite| suite.2).collect();
            format!("the cipher `{name}` is not available; there are {}", all.join(", "))
        })?;
        suites.push(suite.0);
    }
    if suites.is_empty() {
        return Err("no cipher is named".to_owned());
    }
    // As with OpenSSL, whose lists for the two versions are apart.
    for of_13 in [false, true] {
        if !lists_any(&suites, of_13) {
            suites.extend(SUITES.iter().filter(|suite| suite.3 == of_13).map(|suite| suite.0));
        }
    }
    limits.suites = Some(suites);
    Ok(())
}

/// Whether a cipher suite of a version is listed.
fn lists_any(suites: &[u16], of_13: bool) -> bool {
    SUITES.iter().any(|suite| suite.3 == of_13 && suites.contains(&suite.0))
}

/// Takes a list of curves for the exchange of keys, by their names at OpenSSL or at NIST; `auto` is all.
///
/// # Errors
/// The one that is not available.
pub fn allow_curves<'n>(limits: &mut TlsLimits, names: impl IntoIterator<Item = &'n str>) -> Result<(), String> {
    let mut groups = Vec::new();
    for name in items(names) {
        if name.eq_ignore_ascii_case("auto") {
            groups.extend(GROUPS.iter().map(|group| group.0));
            continue;
        }
        let known = |group: &&Group| group.1.iter().any(|known| known.eq_ignore_ascii_case(name));
        let group = GROUPS.iter().find(known).ok_or_else(|| {
            let all: Vec<&str> = GROUPS.iter().map(|group| group.1[0]).collect();
            format!("the curve `{name}` is not available; there are {}", all.join(", "))
        })?;
        groups.push(group.0);
    }
    if groups.is_empty() {
        return Err("no curve is named".to_owned());
    }
    limits.groups = Some(groups);
    Ok(())
}

/// The items of lists that are separated by commas, colons or spaces.
fn items<'n>(lists: impl IntoIterator<Item = &'n str>) -> impl Iterator<Item = &'n str> {
    lists.into_iter().flat_map(|list| list.split([',', ':', ' '])).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(protocols: &str, ciphers: &str) -> Result<TlsLimits, String> {
        let mut limits = TlsLimits::default();
        allow_versions(&mut limits, [protocols])?;
        allow_ciphers(&mut limits, [ciphers])?;
        Ok(limits)
    }

    #[test]
    fn versions_and_ciphers_have_names() {
        let only = limits("tlsv1.3", "TLS_AES_256_GCM_SHA384").unwrap();
        assert_eq!((only.tls12, only.tls13), (false, true));
        assert_eq!(only.suites.unwrap().iter().filter(|suite| **suite < 0xc000).collect::<Vec<_>>(), [&0x1302]);
        let both = "ECDHE-RSA-AES128-GCM-SHA256:TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256";
        assert_eq!(limits("TLSv1.2", both).unwrap().suites, Some(vec![0xc02f, 0xc02c, 0x1301]));
        assert_eq!(limits("secure", "default").unwrap().suites.unwrap().len(), 9);
    }

    #[test]
    fn curves_have_names() {
        let curves = |names| {
            let mut limits = TlsLimits::default();
            allow_curves(&mut limits, [names]).map(|()| limits.groups.unwrap())
        };
        assert_eq!(curves("P-256:x25519"), Ok(vec![0x17, 0x1d]));
        assert_eq!(curves("prime256v1"), Ok(vec![0x17]));
        assert_eq!(curves("auto").map(|all| all.len()), Ok(3));
        assert!(curves("secp521r1").unwrap_err().contains("secp521r1") && curves("").is_err());
    }

    #[test]
    fn what_is_not_available_is_named() {
        for (protocols, ciphers, word) in [
            ("tlsv1.0", "default", "tlsv1.0"),
            ("tls", "default", "no version"),
            ("", "default", "no version"),
            ("secure", "AES128-SHA", "AES128-SHA"),
            ("secure", "HIGH", "HIGH"),
            ("secure", "", "no cipher"),
        ] {
            let message = limits(protocols, ciphers).unwrap_err();
            assert!(message.contains(word), "{protocols} {ciphers}: {message}");
        }
    }
}
