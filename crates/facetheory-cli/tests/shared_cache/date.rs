//! Dates in the three formats of HTTP, relative to now.

use std::time::{Duration, SystemTime};

use tabletheory::{Clock as _, SystemClock};

/// A date in the preferred format: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn date(seconds_from_now: i64) -> String {
    let seconds = SystemClock.now().seconds() + seconds_from_now;
    let seconds = u64::try_from(seconds).expect("a time after 1970");
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// A date in the format of RFC 850: `Sunday, 06-Nov-94 08:49:37 GMT`.
pub(crate) fn rfc850_date(seconds_from_now: i64) -> String {
    let date = date(seconds_from_now);
    let [weekday, day, month, year, time] = parts(&date);
    let weekday = match weekday {
        "Tue" => "Tuesday".to_owned(),
        "Wed" => "Wednesday".to_owned(),
        "Thu" => "Thursday".to_owned(),
        "Sat" => "Saturday".to_owned(),
        short => format!("{short}day"),
    };
    format!("{weekday}, {day}-{month}-{} {time} GMT", &year[2..])
}

/// A date in the format of `asctime`: `Sun Nov  6 08:49:37 1994`.
pub(crate) fn asctime_date(seconds_from_now: i64) -> String {
    let date = date(seconds_from_now);
    let [weekday, day, month, year, time] = parts(&date);
    let day: u8 = day.parse().expect("a day");
    format!("{weekday} {month} {day:2} {time} {year}")
}

fn parts(date: &str) -> [&str; 5] {
    let words: Vec<&str> = date.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let [weekday, day, month, year, time, _gmt] = words.as_slice() else { panic!("invalid date: {date}") };
    [weekday, day, month, year, time]
}
