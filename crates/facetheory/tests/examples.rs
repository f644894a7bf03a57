//! The examples work, on embedded stores and on DynamoDB and S3.

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use support::server_variable;
use tabletheory::{DynamoSettings, DynamoTable, Random, SystemRandom};

/// Cargo builds the examples next to the tests before it runs the tests.
fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test");
    let profile = test.ancestors().nth(2).expect("the directory of the profile");
    profile.join("examples").join(example)
}

/// A running program, killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the program has exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request. Returns the state and the body of the response.
fn request(site: &str, method: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(site).expect("the blog listens");
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: {site}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the request is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    let state = head.lines().find_map(|line| line.strip_prefix("x-facetheory-isr: ")).unwrap_or_default();
    (state.to_owned(), body.to_owned())
}

fn blog(table: &str, bodies: &str, environment: &[(&str, String)]) {
    let mut blog = Command::new(program("blog"));
    blog.args([table, bodies, "127.0.0.1:0"]).stdout(Stdio::piped());
    blog.envs(environment.iter().map(|(name, value)| (name, value)));
    let mut blog = Running(blog.spawn().expect("the blog starts"));
    let mut line = String::new();
    // Open to the end of the test: the program fails when it prints to a closed pipe.
    let mut output = BufReader::new(blog.0.stdout.take().expect("standard output is piped"));
    output.read_line(&mut line).expect("a line with the address");
    let site = line.trim().strip_prefix("listening on http://").expect("an address").to_owned();
    let page = "<!doctype html><title>hello</title><h1>hello</h1><p>Rendered slowly.</p>";
    for state in ["miss", "hit"] {
        assert_eq!(request(&site, "GET", "/posts/hello"), (state.to_owned(), page.to_owned()));
    }
    assert_eq!(request(&site, "POST", "/changed").1, "all posts are stale\n");
    assert_eq!(request(&site, "GET", "/posts/hello").0, "stale");
}

#[test]
fn a_plain_function_is_cached() {
    let output = Command::new(program("function")).output().expect("the example runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let states: Vec<&str> = printed.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(states, ["miss", "hit", "miss", "hit"], "{printed}");
}

#[test]
fn the_blog_runs_on_sqlite_and_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().display();
    blog(&format!("sqlite:{path}/table.db"), &format!("file:{path}/bodies"), &[]);
}

#[tokio::test]
async fn the_blog_runs_on_dynamodb_and_s3() {
    let name = format!("facetheory-blog-{:x}", SystemRandom.next_u64());
    let environment = [
        ("AWS_ENDPOINT_URL_DYNAMODB", server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT")),
        ("AWS_ENDPOINT_URL_S3", server_variable("FACETHEORY_TEST_S3_ENDPOINT")),
        ("AWS_ACCESS_KEY_ID", server_variable("AWS_ACCESS_KEY_ID")),
        ("AWS_SECRET_ACCESS_KEY", server_variable("AWS_SECRET_ACCESS_KEY")),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    let credentials = Credentials::new(&environment[2].1, &environment[3].1, None, None, "tests");
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials)
        .build();
    let client = aws_sdk_dynamodb::Client::from_conf(config);
    let settings = DynamoSettings::default().endpoint(&environment[0].1);
    let table = DynamoTable::new(&client, &name, settings).expect("valid name and settings");
    table.create_table_if_missing().await.expect("a new table");
    let bodies = format!("s3://{}/{name}", server_variable("FACETHEORY_TEST_S3_BUCKET"));
    tokio::task::spawn_blocking({
        let name = name.clone();
        move || blog(&format!("dynamodb:{name}"), &bodies, &environment)
    })
    .await
    .expect("no panic");
    table.delete_table_and_all_rows().await.expect("the table is deleted");
}
