//! `facetheory table template`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::print;

/// Print a template of table, bucket, policy and alarms.
///
/// The table is protected as `table create` does. The bucket is encrypted and private, and no lifecycle rule of it
/// deletes bodies. The policy allows exactly what a gateway and `table check` do. The alarms watch throttles, rejected
/// requests, latency and TTL deletions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory table template --format cloudformation --output stack.yaml
  aws cloudformation deploy --stack-name pages --template-file stack.yaml --capabilities CAPABILITY_IAM

  facetheory table template --format terraform --table-name blog --prefix html --output facetheory.tf
  facetheory table template --format cdk --output lib/facetheory-stores.ts")]
pub(super) struct Arguments {
    /// Language of the template
    #[arg(long, value_name = "FORMAT")]
    format: Format,
    /// Name of the table; the template has it as the default of a parameter
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TABLE)]
    table_name: String,
    /// Prefix of all objects in the bucket; the template has it as the default of a parameter
    #[arg(long, value_name = "PREFIX", default_value = DEFAULT_PREFIX)]
    prefix: String,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The table name and the prefix that the templates are written with.
const DEFAULT_TABLE: &str = "pages";
const DEFAULT_PREFIX: &str = "isr";

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Format {
    /// AWS CloudFormation, in YAML
    Cloudformation,
    /// Terraform or OpenTofu
    Terraform,
    /// AWS CDK, as a construct in TypeScript
    Cdk,
}

impl Format {
    #[cfg(test)]
    pub(super) const ALL: [Format; 3] = [Format::Cloudformation, Format::Terraform, Format::Cdk];

    /// The template with its default names.
    pub(super) fn text(self) -> &'static str {
        match self {
            Format::Cloudformation => include_str!("templates/cloudformation.yaml"),
            Format::Terraform => include_str!("templates/terraform.tf"),
            Format::Cdk => include_str!("templates/cdk.ts"),
        }
    }

    /// The lines with the default values of the table name and of the prefix.
    fn defaults(self, value: &str) -> String {
        match self {
            Format::Cloudformation => format!("    Default: \"{value}\"\n"),
            Format::Terraform => format!("  default     = \"{value}\"\n"),
            Format::Cdk => format!("?? \"{value}\";\n"),
        }
    }

    /// The template with other names.
    fn with(self, table: &str, prefix: &str) -> String {
        // Both lines are found before either is replaced: the new table name may be the default prefix, or vice versa.
        let (before, rest) =
            self.text().split_once(&self.defaults(DEFAULT_TABLE)).unwrap_or((self.text(), ""));
        let (between, after) = rest.split_once(&self.defaults(DEFAULT_PREFIX)).unwrap_or((rest, ""));
        [before, &self.defaults(table), between, &self.defaults(prefix), after].concat()
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let is_plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
    };
    let Arguments { format, table_name, prefix, output } = arguments;
    ensure!(
        is_plain(table_name) && !table_name.contains('/'),
        "`{table_name}` is not the name of a table; use letters, digits, dots, dashes and underscores"
    );
    ensure!(
        is_plain(prefix) && !prefix.starts_with('/') && !prefix.ends_with('/'),
        "`{prefix}` is not a prefix for a template; use letters, digits, `-`, `_` and `/`, without a slash at its ends"
    );
    let text = format.with(table_name, prefix);
    match output {
        Some(file) => std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display())),
        None => print(&text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_policy_of_every_template_is_the_list_of_actions_in_the_code() {
        let expected: BTreeSet<&str> = policy::actions().collect();
        for format in Format::ALL {
            // The bucket policy denies everything without TLS. It does not grant a permission.
            let text = format.text();
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || ":*".contains(c)));
            let is_action = |word: &&str| {
                (word.starts_with("dynamodb:") || word.starts_with("s3:")) && !word.ends_with(['*', ':'])
            };
            let found: BTreeSet<&str> = words.filter(is_action).collect();
            assert_eq!(found, expected, "{format:?}");
        }
    }

    #[test]
    fn no_template_expires_objects() {
        for format in Format::ALL {
            let text = format.text().to_ascii_lowercase();
            for word in ["expirationindays", "expirationdate", "expiration {", "expiration:", "transition"] {
                assert!(!text.contains(word), "{format:?} contains {word}");
            }
        }
    }

    #[test]
    fn names_replace_the_defaults_and_nothing_else() {
        for format in Format::ALL {
            assert_eq!(format.with(DEFAULT_TABLE, DEFAULT_PREFIX), format.text(), "{format:?}");
            // The default of one is also a valid name of the other.
            for (table, prefix) in
                [("blog-table", "html/pages"), (DEFAULT_PREFIX, "html"), (DEFAULT_PREFIX, DEFAULT_TABLE)]
            {
                let other = format.with(table, prefix);
                let changed: Vec<(&str, &str)> =
                    format.text().lines().zip(other.lines()).filter(|(old, new)| old != new).collect();
                assert_eq!(changed.len(), 2, "{format:?}: {changed:?}");
                for ((_, new), name) in changed.iter().zip([table, prefix]) {
                    assert!(new.contains(&format!("\"{name}\"")), "{format:?}: {changed:?}");
                }
            }
        }
    }
}
