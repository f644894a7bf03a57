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

    /// Asserts that a template contains these texts. Comments do not count, and any white space equals one space.
    fn assert_has(format: Format, texts: &[impl AsRef<str>]) {
        let is_code = |line: &&str| !line.trim_start().starts_with(['#', '/']);
        let words = format.text().lines().filter(is_code).flat_map(str::split_whitespace);
        let code = words.collect::<Vec<_>>().join(" ");
        for text in texts.iter().map(AsRef::as_ref) {
            assert!(code.contains(text), "{format:?} lacks {text}");
        }
    }

    /// Asserts that each template contains its texts.
    fn assert_have<T: AsRef<str>>(cloudformation: &[T], terraform: &[T], cdk: &[impl AsRef<str>]) {
        assert_has(Format::Cloudformation, cloudformation);
        assert_has(Format::Terraform, terraform);
        assert_has(Format::Cdk, cdk);
    }

    #[test]
    fn every_template_protects_the_table_and_deletes_rows_by_their_ttl() {
        let cloudformation = [
            "Type: AWS::DynamoDB::Table DeletionPolicy: Retain UpdateReplacePolicy: Retain Properties:",
            "BillingMode: PAY_PER_REQUEST",
            "- AttributeName: pk KeyType: HASH - AttributeName: sk KeyType: RANGE",
            "TimeToLiveSpecification: AttributeName: ttl Enabled: true",
            "PointInTimeRecoverySpecification: PointInTimeRecoveryEnabled: true",
            "DeletionProtectionEnabled: true",
        ];
        let terraform = [
            r#"billing_mode = "PAY_PER_REQUEST" hash_key = "pk" range_key = "sk""#,
            "deletion_protection_enabled = true",
            r#"ttl { attribute_name = "ttl" enabled = true }"#,
            "point_in_time_recovery { enabled = true } lifecycle { prevent_destroy = true } }",
        ];
        let cdk = [
            r#"partitionKey: { name: "pk", type: dynamodb.AttributeType.STRING },"#,
            r#"sortKey: { name: "sk", type: dynamodb.AttributeType.STRING },"#,
            "billingMode: dynamodb.BillingMode.PAY_PER_REQUEST,",
            r#"timeToLiveAttribute: "ttl","#,
            "pointInTimeRecoverySpecification: { pointInTimeRecoveryEnabled: true },",
            "deletionProtection: true, removalPolicy: RemovalPolicy.RETAIN, });",
        ];
        assert_have(&cloudformation, &terraform, &cdk);
    }

    #[test]
    fn every_template_encrypts_the_bucket_and_keeps_it_private() {
        let cloudformation = [
            "Type: AWS::S3::Bucket DeletionPolicy: Retain UpdateReplacePolicy: Retain Properties:",
            "- ServerSideEncryptionByDefault: SSEAlgorithm: AES256",
            "BlockPublicAcls: true BlockPublicPolicy: true IgnorePublicAcls: true RestrictPublicBuckets: true",
            "- ObjectOwnership: BucketOwnerEnforced",
            r#"Effect: Deny Principal: "*" Action: s3:* Resource: - !GetAtt Bucket.Arn - !Sub "${Bucket.Arn}/*""#,
            r#"Condition: Bool: aws:SecureTransport: "false""#,
        ];
        let terraform = [
            "bucket = var.bucket_name lifecycle { prevent_destroy = true } }",
            r#"rule { apply_server_side_encryption_by_default { sse_algorithm = "AES256" } }"#,
            "block_public_acls = true block_public_policy = true ignore_public_acls = true restrict_public_buckets = true",
            r#"rule { object_ownership = "BucketOwnerEnforced" }"#,
            r#"effect = "Deny" actions = ["s3:*"] resources = [aws_s3_bucket.bodies.arn, "#,
            r#"condition { test = "Bool" variable = "aws:SecureTransport" values = ["false"] }"#,
            "policy = data.aws_iam_policy_document.bucket.json",
        ];
        let cdk = [
            "encryption: s3.BucketEncryption.S3_MANAGED,",
            "blockPublicAccess: s3.BlockPublicAccess.BLOCK_ALL,",
            "objectOwnership: s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,",
            "enforceSSL: true,",
            "}], removalPolicy: RemovalPolicy.RETAIN, });",
        ];
        assert_have(&cloudformation, &terraform, &cdk);
    }

    #[test]
    fn every_template_has_alarms_for_throttles_rejected_requests_latency_and_ttl_deletions() {
        let table = "Dimensions: - Name: TableName Value: !Ref Table";
        let cloudformation = [
            format!(
                "ReadThrottleEvents {table} Statistic: Sum Period: 300 EvaluationPeriods: 1 Threshold: 10"
            ),
            format!(
                "WriteThrottleEvents {table} Statistic: Sum Period: 300 EvaluationPeriods: 1 Threshold: 10"
            ),
            "UserErrors Statistic: Sum Period: 300 EvaluationPeriods: 1 Threshold: 50".to_owned(),
            format!("{table} - Name: Operation Value: Query Statistic: Average Period: 60"),
            format!("{table} - Name: Operation Value: TransactWriteItems Statistic: Average Period: 60"),
            format!("TimeToLiveDeletedItemCount {table} Statistic: Sum Period: 86400"),
        ];
        let table = "{ TableName = aws_dynamodb_table.pages.name }";
        let terraform = [
            r#"for_each = toset(["ReadThrottleEvents", "WriteThrottleEvents"])"#.to_owned(),
            format!(
                "each.key dimensions = {table} statistic = \"Sum\" period = 300 evaluation_periods = 1 threshold = 10"
            ),
            r#""UserErrors" statistic = "Sum" period = 300 evaluation_periods = 1 threshold = 50"#.to_owned(),
            "for_each = { Query = 50, TransactWriteItems = 200 }".to_owned(),
            r#"Operation = each.key } statistic = "Average" period = 60"#.to_owned(),
            format!("\"TimeToLiveDeletedItemCount\" dimensions = {table} statistic = \"Sum\" period = 86400"),
        ];
        let cdk = [
            r#"for (const name of ["ReadThrottleEvents", "WriteThrottleEvents"]) {"#,
            r#"metric: metric(name, "Sum", Duration.minutes(5)), threshold: 10,"#,
            r#"metricName: "UserErrors", statistic: "Sum", period: Duration.minutes(5), }), threshold: 50,"#,
            r#"[["Query", 50], ["TransactWriteItems", 200]] as const"#,
            r#"metric("SuccessfulRequestLatency", "Average", Duration.minutes(1), operation), threshold,"#,
            r#"metric("TimeToLiveDeletedItemCount", "Sum", Duration.days(1)),"#,
        ];
        assert_have(&cloudformation, &terraform, &cdk);
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
