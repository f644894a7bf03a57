# Table, bucket, policy and alarms of FaceTheory.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "table_name" {
  description = "The name of the DynamoDB table."
  type        = string
  default     = "pages"
}

variable "bucket_name" {
  description = "The name of the bucket. If it is null, Terraform chooses one."
  type        = string
  default     = null
}

variable "prefix" {
  description = "The prefix of all objects, without slashes at its ends."
  type        = string
  default     = "isr"
}

variable "alarm_topic_arn" {
  description = "An SNS topic that the alarms notify. If it is null, alarms are only shown."
  type        = string
  default     = null
}

locals {
  alarm_actions = var.alarm_topic_arn == null ? [] : [var.alarm_topic_arn]
}

resource "aws_dynamodb_table" "pages" {
  name                        = var.table_name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  range_key                   = "sk"
  deletion_protection_enabled = true

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket" "bodies" {
  bucket = var.bucket_name

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "bodies" {
  bucket = aws_s3_bucket.bodies.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_public_access_block" "bodies" {
  bucket                  = aws_s3_bucket.bodies.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "bodies" {
  bucket = aws_s3_bucket.bodies.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

# No rule may expire objects: a page may use a body of any age. Garbage collection deletes unused bodies.
resource "aws_s3_bucket_lifecycle_configuration" "bodies" {
  bucket = aws_s3_bucket.bodies.id

  rule {
    id     = "abort-incomplete-uploads"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

data "aws_iam_policy_document" "bucket" {
  statement {
    sid       = "DenyInsecureTransport"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.bodies.arn, "${aws_s3_bucket.bodies.arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "bodies" {
  bucket     = aws_s3_bucket.bodies.id
  policy     = data.aws_iam_policy_document.bucket.json
  depends_on = [aws_s3_bucket_public_access_block.bodies]
}

data "aws_iam_policy_document" "gateway" {
  statement {
    sid = "Rows"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:ConditionCheckItem",
      "dynamodb:DeleteItem",
      "dynamodb:GetItem",
      "dynamodb:PutItem",
      "dynamodb:Query",
      "dynamodb:Scan",
      "dynamodb:UpdateItem",
    ]
    resources = [aws_dynamodb_table.pages.arn]
  }

  statement {
    sid = "VerifyTable"
    actions = [
      "dynamodb:DescribeContinuousBackups",
      "dynamodb:DescribeTable",
      "dynamodb:DescribeTimeToLive",
    ]
    resources = [aws_dynamodb_table.pages.arn]
  }

  statement {
    sid = "Bodies"
    actions = [
      "s3:DeleteObject",
      "s3:GetObject",
      "s3:PutObject",
    ]
    resources = ["${aws_s3_bucket.bodies.arn}/${var.prefix}/*"]
  }

  # Without s3:ListBucket on the whole bucket, S3 responds to a missing body with 403 instead of 404.
  statement {
    sid = "VerifyBucket"
    actions = [
      "s3:GetLifecycleConfiguration",
      "s3:ListBucket",
    ]
    resources = [aws_s3_bucket.bodies.arn]
  }
}

# Attach this policy to the role of the gateways.
resource "aws_iam_policy" "gateway" {
  name_prefix = "facetheory-gateway-"
  description = "Serve, publish, invalidate and garbage-collect the pages of FaceTheory."
  policy      = data.aws_iam_policy_document.gateway.json
}

resource "aws_cloudwatch_metric_alarm" "throttles" {
  for_each            = toset(["ReadThrottleEvents", "WriteThrottleEvents"])
  alarm_name          = "${var.table_name}-${each.key}"
  alarm_description   = "Requests to the table are throttled. See the guide about capacity and hot partitions."
  namespace           = "AWS/DynamoDB"
  metric_name         = each.key
  dimensions          = { TableName = aws_dynamodb_table.pages.name }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 10
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

# CloudWatch counts user errors for the whole account and region, not for one table.
resource "aws_cloudwatch_metric_alarm" "user_errors" {
  alarm_name          = "${var.table_name}-UserErrors"
  alarm_description   = "DynamoDB rejects requests of this account and region as invalid. Check permissions and versions."
  namespace           = "AWS/DynamoDB"
  metric_name         = "UserErrors"
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 50
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "latency" {
  for_each            = { Query = 50, TransactWriteItems = 200 }
  alarm_name          = "${var.table_name}-${each.key}-latency"
  alarm_description   = "Lookups (Query) or publishing (TransactWriteItems) are slow."
  namespace           = "AWS/DynamoDB"
  metric_name         = "SuccessfulRequestLatency"
  dimensions          = { TableName = aws_dynamodb_table.pages.name, Operation = each.key }
  statistic           = "Average"
  period              = 60
  evaluation_periods  = 5
  threshold           = each.value
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

# A new table has nothing to delete for as long as its shortest retention, so this alarm notifies nobody.
resource "aws_cloudwatch_metric_alarm" "no_ttl_deletions" {
  alarm_name          = "${var.table_name}-no-ttl-deletions"
  alarm_description   = "TTL deleted no row in a day. In a table that is older than its retention, check that TTL is enabled."
  namespace           = "AWS/DynamoDB"
  metric_name         = "TimeToLiveDeletedItemCount"
  dimensions          = { TableName = aws_dynamodb_table.pages.name }
  statistic           = "Sum"
  period              = 86400
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  actions_enabled     = false
}

output "table" {
  description = "The value of --table."
  value       = "dynamodb:${aws_dynamodb_table.pages.name}"
}

output "bodies" {
  description = "The value of --bodies."
  value       = "s3://${aws_s3_bucket.bodies.id}/${var.prefix}"
}

output "gateway_policy_arn" {
  description = "The policy for the role of the gateways."
  value       = aws_iam_policy.gateway.arn
}
