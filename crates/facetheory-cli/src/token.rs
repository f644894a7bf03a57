//! Secret tokens that a request must have.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Returns the bearer token of a request, unless there are several.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (line, None) = (lines.next()?.as_bytes(), lines.next()) else { return None };
    let (scheme, shown) = line.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| shown.trim_ascii())
}

/// The required token. Only its digest is stored, so it cannot be printed or compared byte by byte.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    digest: [u8; 32],
}

impl Token {
    /// Shorter tokens are rejected.
    pub(crate) const MIN_BYTES: usize = 16;
    /// The environment variable that holds the admin token if no file is configured.
    pub(crate) const VARIABLE: &'static str = "FACETHEORY_ADMIN_TOKEN";

    /// Reads the token from a file. `what` names it in errors.
    pub(crate) fn of_file(file: &Path, what: &str) -> Result<Self> {
        let name = file.display();
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {what} from {name}"))?;
        Token::new(text.trim_end_matches(['\r', '\n']))
            .with_context(|| format!("{what} in {name} is invalid"))
    }

    /// Reads the admin token from a file or the environment.
    pub(crate) fn of_admin(file: Option<&Path>) -> Result<Option<Self>> {
        if let Some(file) = file {
            return Token::of_file(file, "the admin token").map(Some);
        }
        let Some(text) = std::env::var_os(Self::VARIABLE) else { return Ok(None) };
        let text = text.to_str().unwrap_or_default();
        Token::new(text)
            .with_context(|| format!("the admin token in {} is invalid", Self::VARIABLE))
            .map(Some)
    }

    fn new(text: &str) -> Result<Self> {
        ensure!(
            text.len() >= Self::MIN_BYTES,
            "it has {} characters, but at least {} are required; `openssl rand -hex 32` generates one",
            text.len(),
            Self::MIN_BYTES
        );
        ensure!(
            text.bytes().all(|byte| byte.is_ascii_graphic()),
            "it must consist of visible ASCII characters"
        );
        Ok(Token { digest: Sha256::digest(text).into() })
    }

    /// Whether `candidate` is the token. Digests are compared in constant time.
    pub(crate) fn matches(&self, candidate: &[u8]) -> bool {
        let candidate: [u8; 32] = Sha256::digest(candidate).into();
        self.digest.ct_eq(&candidate).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_matches() {
        let token = Token::new("0123456789abcdef").expect("a token");
        assert!(token.matches(b"0123456789abcdef"));
        for other in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.matches(other.as_bytes()), "{other}");
        }
        assert!(!format!("{token:?}").contains("0123456789abcdef"), "the token is never printed");
    }

    #[test]
    fn short_and_unprintable_tokens_are_rejected() {
        let error = Token::new("short").expect_err("too short");
        assert!(
            error.to_string().starts_with("it has 5 characters, but at least 16 are required"),
            "{error}"
        );
        assert!(Token::new("0123456789 abcdef").is_err());
    }
}
