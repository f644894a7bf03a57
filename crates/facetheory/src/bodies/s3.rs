//! Opens S3 with the credentials, region and endpoint that the table on DynamoDB uses too.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsCredential, S3ConditionalPut};
use object_store::{CredentialProvider, RetryConfig};

use crate::error::{Error, Kind, Result};

/// How often a request that a busy store rejected is retried.
const MAX_RETRIES: usize = 5;
/// No retry starts after this: the client has given up by then.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// The configuration of the environment, as the table on DynamoDB uses it.
pub(crate) async fn environment() -> SdkConfig {
    let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
    // The endpoint of S3 takes precedence over the one of all services, as in the AWS tools.
    match std::env::var("AWS_ENDPOINT_URL_S3").ok().filter(|url| !url.is_empty()) {
        Some(endpoint) => config.into_builder().endpoint_url(endpoint).build(),
        None => config,
    }
}

/// Opens a bucket with this configuration.
pub(crate) fn open(config: &SdkConfig, bucket: &str) -> Result<AmazonS3> {
    let region = config.region().ok_or_else(|| {
        Error::invalid("no AWS region is configured; set AWS_REGION or the region of the profile")
    })?;
    let credentials = config.credentials_provider().ok_or_else(|| {
        Error::invalid(
            "no AWS credentials are configured; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
        )
    })?;
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(region.as_ref())
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // Not every S3-compatible store can delete several objects at once.
        .with_disable_bulk_delete(true)
        .with_retry(RetryConfig {
            max_retries: MAX_RETRIES,
            retry_timeout: RETRY_TIMEOUT,
            ..RetryConfig::default()
        })
        .with_credentials(Arc::new(SharedChain(credentials)));
    if let Some(endpoint) = config.endpoint_url() {
        builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
    }
    builder.build().map_err(|cause| {
        Error::new(Kind::Invalid, format!("the bucket {bucket} cannot be opened")).caused_by(cause)
    })
}

/// The credential chain of the SDK for `object_store`.
#[derive(Debug)]
struct SharedChain(SharedCredentialsProvider);

#[async_trait]
impl CredentialProvider for SharedChain {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let failed = |cause| object_store::Error::Generic { store: "S3", source: Box::new(cause) };
        let credentials = self.0.provide_credentials().await.map_err(failed)?;
        Ok(Arc::new(AwsCredential {
            key_id: credentials.access_key_id().to_owned(),
            secret_key: credentials.secret_access_key().to_owned(),
            token: credentials.session_token().map(str::to_owned),
        }))
    }
}
