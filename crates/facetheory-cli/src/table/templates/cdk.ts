// Table, bucket, policy and alarms of FaceTheory, as a construct of the AWS CDK (aws-cdk-lib 2).
//
//   const stores = new FaceTheoryStores(stack, "Pages", { tableName: "pages" });
//   role.addManagedPolicy(stores.gatewayPolicy);

import { CfnOutput, Duration, RemovalPolicy } from "aws-cdk-lib";
import * as cloudwatch from "aws-cdk-lib/aws-cloudwatch";
import * as actions from "aws-cdk-lib/aws-cloudwatch-actions";
import * as dynamodb from "aws-cdk-lib/aws-dynamodb";
import * as iam from "aws-cdk-lib/aws-iam";
import * as s3 from "aws-cdk-lib/aws-s3";
import * as sns from "aws-cdk-lib/aws-sns";
import { Construct } from "constructs";

export interface FaceTheoryStoresProps {
  /** The name of the DynamoDB table. */
  readonly tableName?: string;
  /** The name of the bucket. CloudFormation chooses one by default. */
  readonly bucketName?: string;
  /** The prefix of all objects, without slashes at its ends. */
  readonly prefix?: string;
  /** The topic that the alarms notify. Without it, alarms are only shown. */
  readonly alarmTopic?: sns.ITopic;
}

export class FaceTheoryStores extends Construct {
  readonly table: dynamodb.Table;
  readonly bucket: s3.Bucket;
  /** Attach this policy to the role of the gateways. */
  readonly gatewayPolicy: iam.ManagedPolicy;

  constructor(scope: Construct, id: string, props: FaceTheoryStoresProps = {}) {
    super(scope, id);
    const tableName = props.tableName ?? "pages";
    const prefix = props.prefix ?? "isr";

    this.table = new dynamodb.Table(this, "Table", {
      tableName,
      partitionKey: { name: "pk", type: dynamodb.AttributeType.STRING },
      sortKey: { name: "sk", type: dynamodb.AttributeType.STRING },
      billingMode: dynamodb.BillingMode.PAY_PER_REQUEST,
      timeToLiveAttribute: "ttl",
      pointInTimeRecoverySpecification: { pointInTimeRecoveryEnabled: true },
      deletionProtection: true,
      removalPolicy: RemovalPolicy.RETAIN,
    });

    // No rule may expire objects: a page may use a body of any age. Garbage collection deletes unused bodies.
    this.bucket = new s3.Bucket(this, "Bucket", {
      bucketName: props.bucketName,
      encryption: s3.BucketEncryption.S3_MANAGED,
      blockPublicAccess: s3.BlockPublicAccess.BLOCK_ALL,
      objectOwnership: s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
      enforceSSL: true,
      lifecycleRules: [{ id: "abort-incomplete-uploads", abortIncompleteMultipartUploadAfter: Duration.days(1) }],
      removalPolicy: RemovalPolicy.RETAIN,
    });

    this.gatewayPolicy = new iam.ManagedPolicy(this, "GatewayPolicy", {
      description: "Serve, publish, invalidate and garbage-collect the pages of FaceTheory.",
      statements: [
        new iam.PolicyStatement({
          sid: "Rows",
          actions: [
            "dynamodb:BatchGetItem",
            "dynamodb:ConditionCheckItem",
            "dynamodb:DeleteItem",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:Query",
            "dynamodb:Scan",
            "dynamodb:UpdateItem",
          ],
          resources: [this.table.tableArn],
        }),
        new iam.PolicyStatement({
          sid: "VerifyTable",
          actions: ["dynamodb:DescribeContinuousBackups", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"],
          resources: [this.table.tableArn],
        }),
        new iam.PolicyStatement({
          sid: "Bodies",
          actions: ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"],
          resources: [this.bucket.arnForObjects(`${prefix}/*`)],
        }),
        // Without s3:ListBucket on the whole bucket, S3 responds to a missing body with 403 instead of 404.
        new iam.PolicyStatement({
          sid: "VerifyBucket",
          actions: ["s3:GetLifecycleConfiguration", "s3:ListBucket"],
          resources: [this.bucket.bucketArn],
        }),
      ],
    });

    const metric = (metricName: string, statistic: string, period: Duration, operation?: string) =>
      new cloudwatch.Metric({
        namespace: "AWS/DynamoDB",
        metricName,
        statistic,
        period,
        dimensionsMap: { TableName: this.table.tableName, ...(operation ? { Operation: operation } : {}) },
      });
    const alarms: cloudwatch.Alarm[] = [];
    for (const name of ["ReadThrottleEvents", "WriteThrottleEvents"]) {
      alarms.push(
        new cloudwatch.Alarm(this, name, {
          alarmDescription: "Requests to the table are throttled. See the guide about capacity and hot partitions.",
          metric: metric(name, "Sum", Duration.minutes(5)),
          threshold: 10,
          evaluationPeriods: 1,
          comparisonOperator: cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
          treatMissingData: cloudwatch.TreatMissingData.NOT_BREACHING,
        }),
      );
    }
    // CloudWatch counts user errors for the whole account and region, not for one table.
    alarms.push(
      new cloudwatch.Alarm(this, "UserErrors", {
        alarmDescription: "DynamoDB rejects requests of this account and region as invalid. Check permissions and versions.",
        metric: new cloudwatch.Metric({
          namespace: "AWS/DynamoDB",
          metricName: "UserErrors",
          statistic: "Sum",
          period: Duration.minutes(5),
        }),
        threshold: 50,
        evaluationPeriods: 1,
        comparisonOperator: cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        treatMissingData: cloudwatch.TreatMissingData.NOT_BREACHING,
      }),
    );
    for (const [operation, threshold] of [["Query", 50], ["TransactWriteItems", 200]] as const) {
      alarms.push(
        new cloudwatch.Alarm(this, `${operation}Latency`, {
          alarmDescription: "Lookups (Query) or publishing (TransactWriteItems) are slow.",
          metric: metric("SuccessfulRequestLatency", "Average", Duration.minutes(1), operation),
          threshold,
          evaluationPeriods: 5,
          comparisonOperator: cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
          treatMissingData: cloudwatch.TreatMissingData.NOT_BREACHING,
        }),
      );
    }
    // A new table has nothing to delete for as long as its shortest retention, so this alarm notifies nobody.
    new cloudwatch.Alarm(this, "NoTtlDeletions", {
      alarmDescription:
        "TTL deleted no row in a day. In a table that is older than its retention, check that TTL is enabled.",
      metric: metric("TimeToLiveDeletedItemCount", "Sum", Duration.days(1)),
      threshold: 1,
      evaluationPeriods: 1,
      comparisonOperator: cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
      treatMissingData: cloudwatch.TreatMissingData.BREACHING,
      actionsEnabled: false,
    });
    if (props.alarmTopic) {
      for (const alarm of alarms) {
        alarm.addAlarmAction(new actions.SnsAction(props.alarmTopic));
      }
    }

    new CfnOutput(this, "TableAddress", { description: "The value of --table.", value: `dynamodb:${this.table.tableName}` });
    new CfnOutput(this, "BodiesAddress", {
      description: "The value of --bodies.",
      value: `s3://${this.bucket.bucketName}/${prefix}`,
    });
  }
}
