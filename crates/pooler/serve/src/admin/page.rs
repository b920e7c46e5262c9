//! The page at `/`: one file without anything from elsewhere, that asks this address alone.

use std::sync::LazyLock;

use axum::http::{
    HeaderName,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

const FRAME: &str = include_str!("../../assets/dashboard.html");
const STYLE: &str = include_str!("../../assets/dashboard.css");
const SCRIPT: &str = include_str!("../../assets/dashboard.js");

pub static PAGE: LazyLock<String> = LazyLock::new(|| FRAME.replace("{style}", STYLE).replace("{script}", SCRIPT));

/// Browsers run the page's own script and style alone, known by their digests, and let it connect to no other address.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = |text: &str| STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        digest(SCRIPT),
        digest(STYLE)
    )
});

/// The headers that it comes with.
pub fn headers() -> [(HeaderName, &'static str); 5] {
    [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, &POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (CACHE_CONTROL, "no-store"),
    ]
}
