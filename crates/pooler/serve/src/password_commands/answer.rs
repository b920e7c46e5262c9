//! What a program for a password writes: the password alone, or JSON as the programs of clouds and vaults write it.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use settings::Secret;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Where JSON has the password, in this order: plain names, Entra's (`az account get-access-token`), those of OAuth,
/// and Vault's secrets of both versions.
const PASSWORD_PATHS: &[&[&str]] = &[
    &["password"],
    &["accessToken"],
    &["access_token"],
    &["token"],
    &["data", "password"],
    &["data", "data", "password"],
    &["status", "token"],
];

/// Where JSON has the seconds for which the password holds.
const LIFETIME_PATHS: &[&[&str]] = &[&["expires_in"], &["data", "ttl"], &["lease_duration"]];

/// Where JSON has the time at which it expires: seconds since 1970, or a date of RFC 3339.
const EXPIRY_PATHS: &[&[&str]] =
    &[&["expires_on"], &["expires_at"], &["expiration"], &["Expiration"], &["status", "expirationTimestamp"]];

/// A password, and when it expires, if that is known.
pub struct Answer {
    pub password: Secret,
    pub expires: Option<SystemTime>,
}

/// Reads what a program has written.
///
/// # Errors
/// What is wrong, without any part of the output.
pub fn read(output: &[u8], now: SystemTime) -> Result<Answer, String> {
    let text = std::str::from_utf8(output).map_err(|_| "its output is not UTF-8".to_owned())?.trim();
    if text.is_empty() {
        return Err("it writes nothing".to_owned());
    }
    if !text.starts_with('{') {
        if text.lines().count() > 1 {
            return Err("it writes several lines, and no JSON".to_owned());
        }
        return Ok(Answer { password: Secret::new(text), expires: None });
    }
    let json: Value = serde_json::from_str(text).map_err(|_| "its output begins like JSON, and is none".to_owned())?;
    let find = |paths: &[&[&str]]| paths.iter().find_map(|path| at(&json, path).cloned());
    let password = PASSWORD_PATHS.iter().find_map(|path| at(&json, path)?.as_str().filter(|text| !text.is_empty()));
    let password = password.ok_or("its JSON has no `password`, `accessToken`, `token` or `data.password`")?;
    let expires = match (find(EXPIRY_PATHS), find(LIFETIME_PATHS)) {
        (Some(expiry), _) => Some(moment(&expiry).ok_or("its JSON has an expiry that is no time")?),
        (None, Some(lifetime)) => {
            let seconds = seconds(&lifetime).ok_or("its JSON has a lifetime that is no number of seconds")?;
            // Vault writes 0 for a secret that does not expire.
            (seconds > 0).then(|| now + Duration::from_secs(seconds))
        }
        (None, None) => None,
    };
    Ok(Answer { password: Secret::new(password), expires })
}

fn at<'j>(json: &'j Value, path: &[&str]) -> Option<&'j Value> {
    path.iter().try_fold(json, |value, name| value.get(name)).filter(|value| !value.is_null())
}

fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn moment(value: &Value) -> Option<SystemTime> {
    if let Some(seconds) = seconds(value) {
        return SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    }
    OffsetDateTime::parse(value.as_str()?, &Rfc3339).ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn read_text(text: &str) -> Result<(String, Option<u64>), String> {
        let answer = read(text.as_bytes(), NOW)?;
        let seconds = answer.expires.map(|expires| expires.duration_since(NOW).unwrap().as_secs());
        Ok((answer.password.reveal().to_string(), seconds))
    }

    #[test]
    fn the_outputs_of_well_known_programs_are_read() {
        for (text, password, expires) in [
            ("host:5432/?Action=connect&X-Amz-Expires=900\n", "host:5432/?Action=connect&X-Amz-Expires=900", None),
            (
                r#"{"accessToken": "ey", "expiresOn": "2026-11-29 21:30:00.0", "expires_on": 1795987800}"#,
                "ey",
                Some(1_795_987_800),
            ),
            (r#"{"access_token": "ya", "expires_in": 3599}"#, "ya", Some(3599)),
            (r#"{"lease_duration": 3600, "data": {"username": "v-app", "password": "p"}}"#, "p", Some(3600)),
            (r#"{"lease_duration": 0, "data": {"password": "p", "ttl": 120}}"#, "p", Some(120)),
            (r#"{"lease_duration": 0, "data": {"data": {"password": "p"}}}"#, "p", None),
            (r#"{"password": "p", "expires_at": "1970-01-02T00:00:00Z"}"#, "p", Some(86_400)),
            (r#"{"password": "p", "Expiration": "2026-11-29T22:30:00.5+01:00"}"#, "p", Some(1_795_987_800)),
        ] {
            assert_eq!(read_text(text), Ok((password.to_owned(), expires)), "{text}");
        }
    }

    #[test]
    fn an_output_without_a_password_is_an_error_that_shows_none_of_it() {
        for text in [
            "",
            "two\nlines",
            "{no json",
            r#"{"secret": "x"}"#,
            r#"{"password": ""}"#,
            r#"{"password": 5}"#,
            r#"{"password": "p", "expires_at": "soon"}"#,
            r#"{"password": "p", "expires_in": "x"}"#,
        ] {
            let error = read_text(text).unwrap_err();
            assert!(!error.contains("two") && !error.contains("secret") && !error.contains("soon"), "{error}");
        }
    }
}
