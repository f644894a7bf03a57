//! The age of a response: RFC 9111, sections 4.2.3 and 5.1.

use std::time::UNIX_EPOCH;

use tabletheory::{Clock as _, SystemClock};

use crate::date::date;
use crate::helpers::{age, assert_all_cached, assert_none_reused, numbered};
use crate::support::client::Response;
use crate::support::site::Site;
use crate::support::wait_for;

on_each_store![
    rfc9111_5_1_a_cached_response_has_an_age,
    rfc9111_4_2_3_the_age_header_of_the_origin_counts,
    rfc9111_4_2_3_the_date_of_a_response_counts,
    rfc9111_4_2_3_the_greater_of_age_and_date_counts,
    rfc9111_4_2_3_a_future_date_does_not_reduce_the_age,
    rfc9111_4_2_3_age_grows_while_a_response_is_cached,
    rfc9111_5_1_an_age_that_is_not_a_number_is_ignored,
    rfc9111_5_1_of_several_ages_the_first_counts,
    rfc9110_6_6_1_a_response_without_a_date_gets_the_date_of_its_arrival,
    rfc9110_6_6_1_the_date_of_a_response_is_not_changed,
];

fn rfc9111_5_1_a_cached_response_has_an_age(site: &Site) {
    numbered(site, "/age", &["Cache-Control: max-age=3600"]);
    let first = site.get("/age");
    assert!(
        first.header("age").is_none_or(|age| age == "0"),
        "it was fetched for this client: {:?}",
        first.headers
    );
    let second = site.get("/age");
    assert_eq!(second.text(), "response 1");
    assert!(age(&second) < 30);
}

fn rfc9111_4_2_3_the_age_header_of_the_origin_counts(site: &Site) {
    numbered(site, "/age", &["Cache-Control: max-age=3600", "Age: 3000"]);
    site.get("/age");
    let second = site.get("/age");
    assert_eq!(second.text(), "response 1");
    assert!((3000..3600).contains(&age(&second)), "{}", age(&second));
    assert_none_reused(site, "old", &[&["Cache-Control: max-age=3600", "Age: 4000"]]);
}

fn rfc9111_4_2_3_the_date_of_a_response_counts(site: &Site) {
    let (young, old) = (format!("Date: {}", date(-3000)), format!("Date: {}", date(-4000)));
    numbered(site, "/date", &["Cache-Control: max-age=3600", &young]);
    site.get("/date");
    let second = site.get("/date");
    assert_eq!(second.text(), "response 1");
    assert!((3000..3600).contains(&age(&second)), "{}", age(&second));
    assert_none_reused(site, "old", &[&["Cache-Control: max-age=3600", &old]]);
}

fn rfc9111_4_2_3_the_greater_of_age_and_date_counts(site: &Site) {
    let (young, old) = (format!("Date: {}", date(-1000)), format!("Date: {}", date(-4000)));
    numbered(site, "/age", &["Cache-Control: max-age=3600", &young, "Age: 2000"]);
    site.get("/age");
    assert!((2000..3600).contains(&age(&site.get("/age"))));
    assert_none_reused(
        site,
        "old",
        &[
            &["Cache-Control: max-age=3600", &young, "Age: 4000"],
            &["Cache-Control: max-age=3600", &old, "Age: 10"],
        ],
    );
}

fn rfc9111_4_2_3_a_future_date_does_not_reduce_the_age(site: &Site) {
    let future = format!("Date: {}", date(7200));
    numbered(site, "/future", &["Cache-Control: max-age=3600", &future, "Age: 100"]);
    site.get("/future");
    assert!((100..3600).contains(&age(&site.get("/future"))));
    assert_none_reused(site, "old", &[&["Cache-Control: max-age=3600", &future, "Age: 4000"]]);
}

fn rfc9111_4_2_3_age_grows_while_a_response_is_cached(site: &Site) {
    numbered(site, "/age", &["Cache-Control: max-age=3600", "Age: 100"]);
    site.get("/age");
    let first = age(&site.get("/age"));
    wait_for("the age grows", || (age(&site.get("/age")) > first).then_some(()));
    assert_eq!(site.get("/age").text(), "response 1");
}

fn rfc9111_5_1_an_age_that_is_not_a_number_is_ignored(site: &Site) {
    assert_all_cached(
        site,
        "no-number",
        &[
            &["Cache-Control: max-age=3600", "Age: -7200"],
            &["Cache-Control: max-age=3600", "Age: abc"],
            &["Cache-Control: max-age=3600", "Age: 7200.5"],
            &["Cache-Control: max-age=3600", "Age:"],
            &["Cache-Control: max-age=3600", "Age: \"7200\""],
        ],
    );
}

fn rfc9111_5_1_of_several_ages_the_first_counts(site: &Site) {
    assert_all_cached(
        site,
        "young",
        &[
            &["Cache-Control: max-age=3600", "Age: 0, 7200"],
            &["Cache-Control: max-age=3600", "Age: 0", "Age: 7200"],
        ],
    );
    assert_none_reused(
        site,
        "old",
        &[
            &["Cache-Control: max-age=3600", "Age: 7200, 0"],
            &["Cache-Control: max-age=3600", "Age: 7200", "Age: 0"],
        ],
    );
}

fn rfc9110_6_6_1_a_response_without_a_date_gets_the_date_of_its_arrival(site: &Site) {
    numbered(site, "/dateless", &["Cache-Control: max-age=3600"]);
    let now = || SystemClock.now().seconds();
    let before = now();
    let first = site.get("/dateless");
    let after = now();
    let date_of = |response: &Response| response.header("date").expect("a date").to_owned();
    let arrival = date_of(&first);
    let time = httpdate::parse_http_date(&arrival).expect("an HTTP date");
    let time = time.duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    assert!((before..=after).contains(&time.cast_signed()), "{arrival}");
    wait_for("a later second", || (now() > after + 1).then_some(()));
    let second = site.get("/dateless");
    assert_eq!((second.text(), date_of(&second)), ("response 1".to_owned(), arrival));
}

fn rfc9110_6_6_1_the_date_of_a_response_is_not_changed(site: &Site) {
    let printed = date(-600);
    numbered(site, "/dated", &["Cache-Control: max-age=3600", &format!("Date: {printed}")]);
    for _ in 0..2 {
        let response = site.get("/dated");
        let dates: Vec<_> = response.headers.iter().filter(|(name, _)| name == "date").collect();
        assert_eq!(dates.len(), 1, "{dates:?}");
        assert_eq!((response.text().as_str(), dates[0].1.as_str()), ("response 1", printed.as_str()));
    }
}
