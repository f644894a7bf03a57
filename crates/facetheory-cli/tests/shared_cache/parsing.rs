//! Unusual but real `Cache-Control` headers, interpreted in the strictest sensible way.

use crate::helpers::{assert_all_cached, assert_none_reused};
use crate::support::site::Site;

on_each_store![
    rfc9111_5_2_directive_names_ignore_case,
    rfc9111_5_2_values_may_be_quoted,
    rfc9111_5_2_directives_may_have_several_lines_and_any_whitespace,
    rfc9111_5_2_3_unknown_directives_are_ignored,
    rfc9111_1_2_2_a_number_that_overflows_is_a_long_time,
    rfc9111_4_2_1_an_invalid_lifetime_is_ignored,
    rfc9111_4_2_1_of_several_lifetimes_the_shortest_counts,
    rfc9111_4_2_1_forbidding_directives_win_over_allowing_ones,
    rfc9110_5_6_1_empty_members_of_a_list_are_ignored,
];

fn rfc9111_5_2_directive_names_ignore_case(site: &Site) {
    assert_all_cached(
        site,
        "allowed",
        &[
            &["Cache-Control: MAX-AGE=3600"],
            &["CACHE-CONTROL: Max-Age=3600"],
            &["cache-control: S-MaxAge=3600"],
        ],
    );
    assert_none_reused(
        site,
        "forbidden",
        &[
            &["Cache-Control: max-age=3600, NO-STORE"],
            &["Cache-Control: max-age=3600, No-Cache"],
            &["Cache-Control: max-age=3600, Private"],
        ],
    );
}

fn rfc9111_5_2_values_may_be_quoted(site: &Site) {
    assert_all_cached(
        site,
        "quoted",
        &[&["Cache-Control: max-age=\"3600\""], &["Cache-Control: s-maxage=\"3600\""]],
    );
    assert_none_reused(site, "quoted-0", &[&["Cache-Control: max-age=\"0\""]]);
    // Text within quotes is not a directive, and an unterminated quote hides no directive.
    assert_all_cached(site, "within", &[&["Cache-Control: extension=\"no-store, max-age=0\", max-age=3600"]]);
    assert_none_reused(site, "endless", &[&["Cache-Control: extension=\"max-age=3600"]]);
}

fn rfc9111_5_2_directives_may_have_several_lines_and_any_whitespace(site: &Site) {
    assert_all_cached(
        site,
        "lines",
        &[
            &["Cache-Control: public", "Cache-Control: max-age=3600"],
            &["Cache-Control:   public  ,\tmax-age=3600  "],
            &["Cache-Control: public,max-age=3600"],
        ],
    );
    assert_none_reused(
        site,
        "forbidden",
        &[
            &["Cache-Control: max-age=3600", "Cache-Control: no-store"],
            &["Cache-Control: no-cache", "Cache-Control: max-age=3600"],
        ],
    );
}

fn rfc9111_5_2_3_unknown_directives_are_ignored(site: &Site) {
    assert_all_cached(
        site,
        "unknown",
        &[
            &["Cache-Control: max-age=3600, foobar"],
            &["Cache-Control: foobar=5, max-age=3600"],
            &["Cache-Control: xmax-age=0, max-age=3600, max-agex=0, no-storex, xno-store"],
            &["Cache-Control: foobar=\"a, b\", max-age=3600"],
        ],
    );
}

fn rfc9111_1_2_2_a_number_that_overflows_is_a_long_time(site: &Site) {
    assert_all_cached(
        site,
        "large",
        &[
            &["Cache-Control: max-age=2147483648"],
            &["Cache-Control: max-age=4294967296"],
            &["Cache-Control: max-age=99999999999999999999999999"],
            &["Cache-Control: s-maxage=18446744073709551617"],
        ],
    );
    assert_none_reused(
        site,
        "age",
        &[
            &["Cache-Control: max-age=3600", "Age: 2147483649"],
            &["Cache-Control: max-age=3600", "Age: 99999999999999999999999999"],
        ],
    );
}

fn rfc9111_4_2_1_an_invalid_lifetime_is_ignored(site: &Site) {
    assert_none_reused(
        site,
        "no-number",
        &[
            &["Cache-Control: max-age=-3600"],
            &["Cache-Control: max-age=3600.5"],
            &["Cache-Control: max-age=a3600"],
            &["Cache-Control: max-age=3600a"],
            &["Cache-Control: max-age="],
            &["Cache-Control: max-age"],
            &["Cache-Control: max-age=1h"],
            &["Cache-Control: s-maxage=x, max-age=3600"],
        ],
    );
}

fn rfc9111_4_2_1_of_several_lifetimes_the_shortest_counts(site: &Site) {
    assert_none_reused(
        site,
        "several",
        &[
            &["Cache-Control: max-age=0, max-age=3600"],
            &["Cache-Control: max-age=3600, max-age=0"],
            &["Cache-Control: max-age=3600", "Cache-Control: max-age=0"],
            &["Cache-Control: max-age=7200, max-age=60", "Age: 600"],
            &["Cache-Control: s-maxage=3600, s-maxage=0"],
        ],
    );
    assert_all_cached(site, "equal", &[&["Cache-Control: max-age=3600, max-age=3600"]]);
}

fn rfc9111_4_2_1_forbidding_directives_win_over_allowing_ones(site: &Site) {
    assert_none_reused(
        site,
        "forbidden",
        &[
            &["Cache-Control: public, private, max-age=3600"],
            &["Cache-Control: public, no-store, s-maxage=3600"],
            &["Cache-Control: no-cache, max-age=3600, public"],
        ],
    );
}

fn rfc9110_5_6_1_empty_members_of_a_list_are_ignored(site: &Site) {
    assert_all_cached(site, "empty", &[&["Cache-Control: ,, public,, ,max-age=3600,"]]);
    assert_none_reused(site, "forbidden", &[&["Cache-Control: ,,max-age=3600,,no-store,,"]]);
}
