//! S3, with the credentials, region and endpoint that the table on DynamoDB uses too.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsCredential, S3ConditionalPut};
use object_store::{CredentialProvider, RetryConfig};

use crate::error::{Error, Kind, Result};

/// How often a request is repeated that a busy store turned away.
const RETRIES: usize = 5;
/// After this no further repetition begins: whoever waits for a page would have given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The configuration that the environment tells, as the table on DynamoDB uses it.
pub(crate) async fn environment() -> SdkConfig {
    let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
    match endpoint(config.endpoint_url()) {
        Some(endpoint) => config.into_builder().endpoint_url(endpoint).build(),
        None => config,
    }
}

/// The bucket, reached as the configuration says.
pub(crate) fn open(config: &SdkConfig, bucket: &str) -> Result<AmazonS3> {
    let region = config.region().ok_or_else(|| {
        Error::invalid("there is no AWS region; set AWS_REGION or the region of the profile")
    })?;
    let credentials = config.credentials_provider().ok_or_else(|| {
        Error::invalid(
            "there are no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
        )
    })?;
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(region.as_ref())
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // Not every store that speaks S3 can delete several objects at once.
        .with_disable_bulk_delete(true)
        .with_retry(RetryConfig { max_retries: RETRIES, retry_timeout: PATIENCE, ..RetryConfig::default() })
        .with_credentials(Arc::new(SharedChain(credentials)));
    if let Some(endpoint) = config.endpoint_url() {
        builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
    }
    builder.build().map_err(|cause| {
        Error::new(Kind::Invalid, format!("the bucket {bucket} cannot be opened")).caused_by(cause)
    })
}

/// A variable for S3 alone outweighs one for all services, as in the AWS tools.
fn endpoint(for_all: Option<&str>) -> Option<String> {
    std::env::var("AWS_ENDPOINT_URL_S3").ok().filter(|url| !url.is_empty()).or(for_all.map(str::to_owned))
}

/// The SDK's credential chain, as the store of objects wants it.
#[derive(Debug)]
struct SharedChain(SharedCredentialsProvider);

#[async_trait]
impl CredentialProvider for SharedChain {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let credentials = self
            .0
            .provide_credentials()
            .await
            .map_err(|cause| object_store::Error::Generic { store: "S3", source: Box::new(cause) })?;
        Ok(Arc::new(AwsCredential {
            key_id: credentials.access_key_id().to_owned(),
            secret_key: credentials.secret_access_key().to_owned(),
            token: credentials.session_token().map(str::to_owned),
        }))
    }
}
