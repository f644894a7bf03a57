//! HTTP dates: one format to write, three formats to read (RFC 9110 §5.6.7).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::HeaderName;
use tabletheory::Timestamp;

/// Returns the date of a header in any of the three formats, or `None` if the header is repeated or invalid.
pub(crate) fn date_of(headers: &HeaderMap, name: &HeaderName) -> Option<Timestamp> {
    let mut lines = headers.get_all(name).iter();
    let date = lines.next()?.to_str().ok()?;
    if lines.next().is_some() { None } else { parse_date(date) }
}

/// Parses a date in any of the three formats, of 1970 or later.
///
/// The formats are matched exactly, except for case (RFC 9111 §4.2): an invalid date counts as past. A wrong day of the week is
/// ignored.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    let (mut words, mut count) = ([""; 7], 0);
    for (place, word) in words.iter_mut().zip(text.trim().split(' ')) {
        (*place, count) = (word, count + 1);
    }
    let is_gmt = |zone: &str| zone.eq_ignore_ascii_case("GMT");
    let (weekdays, weekday, day, month, year, time) = match words[..count] {
        // Sun Nov  6 08:49:37 1994
        [weekday, month, "", day, time, year] => {
            (SHORT, weekday, digits(day, 1)?, month, digits(year, 4)?, time)
        }
        // Sun Nov 16 08:49:37 1994
        [weekday, month, day, time, year] => (SHORT, weekday, digits(day, 2)?, month, digits(year, 4)?, time),
        // Sun, 06 Nov 1994 08:49:37 GMT
        [weekday, day, month, year, time, zone] if is_gmt(zone) => {
            (SHORT, weekday.strip_suffix(',')?, digits(day, 2)?, month, digits(year, 4)?, time)
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [weekday, date, time, zone] if is_gmt(zone) => {
            let [day, month, year] = split(date, '-')?;
            let year = digits(year, 2)?;
            // Two digits are a year from 1970 to 2069. RFC 9110 §5.6.7 uses a moving limit of fifty years from now; a date
            // that is wrongly taken for the past makes a response stale, never fresh for too long.
            let year = if year < 70 { 2000 + year } else { 1900 + year };
            (LONG, weekday.strip_suffix(',')?, digits(day, 2)?, month, year, time)
        }
        _ => return None,
    };
    let is_weekday = weekdays.iter().any(|known| known.eq_ignore_ascii_case(weekday));
    let [hour, minute, second] = split(time, ':')?.map(|part| digits(part, 2));
    let (hour, minute, second) = (hour?, minute?, second?);
    if !is_weekday || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = day_number(day, month, year)? * 86_400 + (hour * 60 + minute) * 60 + second;
    (seconds >= 0).then(|| Timestamp::from_seconds(seconds))
}

/// Formats a time for `Date` and `Last-Modified`. Returns `None` before 1970 and after 9999.
pub(crate) fn format_date(time: Timestamp) -> Option<String> {
    /// The last second of the year 9999.
    const LAST: u64 = 253_402_300_799;
    let seconds = u64::try_from(time.seconds()).ok().filter(|seconds| *seconds <= LAST)?;
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds);
    Some(httpdate::fmt_http_date(time))
}

const SHORT: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const LONG: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Splits a text into exactly `COUNT` parts.
fn split<const COUNT: usize>(text: &str, separator: char) -> Option<[&str; COUNT]> {
    let mut parts = text.split(separator);
    let mut found = [""; COUNT];
    for part in &mut found {
        *part = parts.next()?;
    }
    parts.next().is_none().then_some(found)
}

/// Parses a number of exactly `count` digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let plain = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Returns the number of days since 1970 of a valid date in the Gregorian calendar.
fn day_number(day: i64, month: &str, year: i64) -> Option<i64> {
    let month = MONTHS.iter().position(|known| known.eq_ignore_ascii_case(month))?;
    let leap = i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    let lengths = [31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before: i64 = lengths[..month].iter().sum();
    if !(1..=lengths[month]).contains(&day) {
        return None;
    }
    let leap_days = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    Some(years + before + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<i64> {
        parse_date(text).map(Timestamp::seconds)
    }

    #[test]
    fn rfc9110_5_6_7_dates_have_three_forms() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(read(text), Some(784_111_777), "{text}");
        }
        assert_eq!(read("Wed Nov 16 08:49:37 1994"), Some(784_975_777));
        assert_eq!(read("Thursday, 18-Aug-50 02:01:18 GMT"), read("Thu, 18 Aug 2050 02:01:18 GMT"));
        assert_eq!(read("Sat, 31 Dec 2016 23:59:60 GMT"), read("Sun, 01 Jan 2017 00:00:00 GMT"));
    }

    #[test]
    fn rfc9111_4_2_dates_are_case_insensitive() {
        for text in
            ["SUN, 06 nov 1994 08:49:37 gMT", "sUNDAY, 06-NOV-94 08:49:37 gmt", "sun nov  6 08:49:37 1994"]
        {
            assert_eq!(read(text), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn a_wrong_day_of_the_week_is_ignored() {
        assert_eq!(read("Mon, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(read("Thu Aug  8 02:01:18 2050"), read("Mon Aug  8 02:01:18 2050"));
    }

    #[test]
    fn other_formats_are_invalid() {
        for text in [
            "",
            "0",
            "-1",
            "Thu, 18 Aug 2050 02:01:18",
            "Thu, 18 Aug 2050 02:01:18 UTC",
            "Thu, 18 Aug 2050 02:01:18 AEST",
            "Thu, 18 Aug 2050 02:01:18 GMT+1",
            "Thu, 18 Aug 50 02:01:18 GMT",
            "Thu 18 Aug 2050 02:01:18 GMT",
            "Thu, 18  Aug  2050 02:01:18 GMT",
            "Thu, 18-Aug-2050 02:01:18 GMT",
            "Thu, 18-Aug-50 02:01:18 GMT",
            "Thursday, 18-Aug-2050 02:01:18 GMT",
            "Thursday, 18 Aug 2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02.01.18 GMT",
            "Thu, 18 Aug 2050 2:01:18 GMT",
            "Thu, 8 Aug 2050 02:01:18 GMT",
            "Thu, +8 Aug 2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 24:00:00 GMT",
            "Thu, 18 Aug 2050 02:60:18 GMT",
            "Thu, 18 Aug 2050 02:01:61 GMT",
            "Thu, 31 Feb 2050 02:01:18 GMT",
            "Thu, 29 Feb 2100 02:01:18 GMT",
            "Thu, 00 Aug 2050 02:01:18 GMT",
            "Xyz, 18 Aug 2050 02:01:18 GMT",
            "Thu, 18 Xyz 2050 02:01:18 GMT",
            "Thu Aug 8 02:01:18 2050",
            "Thu Aug  18 02:01:18 2050",
            "Thu Aug  8 02:01:18 2050 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Thu, 18 Aug 2050 02:01:18 GMT, Thu, 18 Aug 2050 02:01:18 GMT",
            "2050-08-18T02:01:18Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatted_dates_are_parsed_back(seconds in 0i64..253_402_300_800) {
            let time = Timestamp::from_seconds(seconds);
            prop_assert_eq!(parse_date(&format_date(time).expect("a date")), Some(time));
        }

        #[test]
        fn dates_are_parsed_like_the_httpdate_crate_does(
            text in "(Mon|Tue|Wed|Thu|Fri|Sat|Sun)(day)?,? [0-3][0-9][ -](Jan|Feb|Aug|Dec)[ -](20)?[0-9]{2} [0-2][0-9]:[0-5][0-9]:[0-5][0-9] GMT",
        ) {
            if let Ok(time) = httpdate::parse_http_date(&text) {
                let since = time.duration_since(UNIX_EPOCH).expect("a time after 1970");
                prop_assert_eq!(read(&text), i64::try_from(since.as_secs()).ok());
            }
        }

        #[test]
        fn any_time_and_any_text_is_handled_without_panic(millis: i64, text in "\\PC{0,40}") {
            let _ = format_date(Timestamp::from_millis(millis));
            let _ = parse_date(&text);
        }
    }
}
