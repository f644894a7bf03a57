//! The token that an operator shows.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The token that is required. Only its digest is kept, so it can be neither printed nor compared byte by byte.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    digest: [u8; 32],
}

impl Token {
    /// A shorter token can be guessed.
    pub(crate) const LEAST_BYTES: usize = 16;
    /// The variable that holds a token where no file does.
    pub(crate) const VARIABLE: &'static str = "FACETHEORY_ADMIN_TOKEN";

    /// The token of this file, else of the environment, if there is one.
    pub(crate) fn find(file: Option<&Path>) -> Result<Option<Self>> {
        if let Some(file) = file {
            let name = file.display();
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("the admin token cannot be read from {name}"))?;
            return Token::new(text.trim_end_matches(['\r', '\n']))
                .with_context(|| format!("the admin token in {name} is of no use"))
                .map(Some);
        }
        let Some(text) = std::env::var_os(Self::VARIABLE) else { return Ok(None) };
        let text = text.to_str().unwrap_or_default();
        Token::new(text)
            .with_context(|| format!("the admin token in {} is of no use", Self::VARIABLE))
            .map(Some)
    }

    fn new(text: &str) -> Result<Self> {
        ensure!(
            text.len() >= Self::LEAST_BYTES,
            "it has {} characters; it needs at least {}, as `openssl rand -hex 32` makes them",
            text.len(),
            Self::LEAST_BYTES
        );
        ensure!(text.bytes().all(|byte| byte.is_ascii_graphic()), "it must be of visible ASCII characters");
        Ok(Token { digest: Sha256::digest(text).into() })
    }

    /// Whether this is it. How long that takes tells nothing of it: digests are compared, and all of their bytes.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        self.digest.ct_eq(&shown).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_token_is_it() {
        let token = Token::new("0123456789abcdef").expect("a token");
        assert!(token.is(b"0123456789abcdef"));
        for other in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert!(!format!("{token:?}").contains("0123456789abcdef"), "it is never printed");
    }

    #[test]
    fn a_token_that_can_be_guessed_or_not_sent_is_refused() {
        let error = Token::new("short").expect_err("too short");
        assert!(error.to_string().starts_with("it has 5 characters; it needs at least 16"), "{error}");
        assert!(Token::new("0123456789 abcdef").is_err());
    }
}
