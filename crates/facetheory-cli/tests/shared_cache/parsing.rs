//! What people really send in `Cache-Control`, read in the strictest sensible way.

use crate::support::site::Site;
use crate::trial::{assert_all_kept, assert_none_served_again};

stories![
    rfc9111_5_2_names_of_directives_have_no_case,
    rfc9111_5_2_values_may_be_quoted,
    rfc9111_5_2_directives_may_stand_in_several_lines_and_with_any_space,
    rfc9111_5_2_3_unknown_directives_are_ignored,
    rfc9111_1_2_2_a_number_that_is_too_large_is_a_long_time,
    rfc9111_4_2_1_a_lifetime_that_is_no_number_is_none,
    rfc9111_4_2_1_of_several_lifetimes_the_shortest_holds,
    rfc9111_4_2_1_what_forbids_wins_over_what_allows,
    rfc9110_5_6_1_empty_members_of_a_list_are_ignored,
];

fn rfc9111_5_2_names_of_directives_have_no_case(site: &Site) {
    assert_all_kept(
        site,
        "allowed",
        &[
            &["Cache-Control: MAX-AGE=3600"],
            &["CACHE-CONTROL: Max-Age=3600"],
            &["cache-control: S-MaxAge=3600"],
        ],
    );
    assert_none_served_again(
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
    assert_all_kept(
        site,
        "quoted",
        &[&["Cache-Control: max-age=\"3600\""], &["Cache-Control: s-maxage=\"3600\""]],
    );
    assert_none_served_again(site, "quoted-0", &[&["Cache-Control: max-age=\"0\""]]);
    // What is told within quotes is no directive, and a quote that never ends hides none.
    assert_all_kept(site, "within", &[&["Cache-Control: extension=\"no-store, max-age=0\", max-age=3600"]]);
    assert_none_served_again(site, "endless", &[&["Cache-Control: extension=\"max-age=3600"]]);
}

fn rfc9111_5_2_directives_may_stand_in_several_lines_and_with_any_space(site: &Site) {
    assert_all_kept(
        site,
        "lines",
        &[
            &["Cache-Control: public", "Cache-Control: max-age=3600"],
            &["Cache-Control:   public  ,\tmax-age=3600  "],
            &["Cache-Control: public,max-age=3600"],
        ],
    );
    assert_none_served_again(
        site,
        "forbidden",
        &[
            &["Cache-Control: max-age=3600", "Cache-Control: no-store"],
            &["Cache-Control: no-cache", "Cache-Control: max-age=3600"],
        ],
    );
}

fn rfc9111_5_2_3_unknown_directives_are_ignored(site: &Site) {
    assert_all_kept(
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

fn rfc9111_1_2_2_a_number_that_is_too_large_is_a_long_time(site: &Site) {
    assert_all_kept(
        site,
        "large",
        &[
            &["Cache-Control: max-age=2147483648"],
            &["Cache-Control: max-age=4294967296"],
            &["Cache-Control: max-age=99999999999999999999999999"],
            &["Cache-Control: s-maxage=18446744073709551617"],
        ],
    );
    assert_none_served_again(
        site,
        "age",
        &[
            &["Cache-Control: max-age=3600", "Age: 2147483649"],
            &["Cache-Control: max-age=3600", "Age: 99999999999999999999999999"],
        ],
    );
}

fn rfc9111_4_2_1_a_lifetime_that_is_no_number_is_none(site: &Site) {
    assert_none_served_again(
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

fn rfc9111_4_2_1_of_several_lifetimes_the_shortest_holds(site: &Site) {
    assert_none_served_again(
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
    assert_all_kept(site, "equal", &[&["Cache-Control: max-age=3600, max-age=3600"]]);
}

fn rfc9111_4_2_1_what_forbids_wins_over_what_allows(site: &Site) {
    assert_none_served_again(
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
    assert_all_kept(site, "empty", &[&["Cache-Control: ,, public,, ,max-age=3600,"]]);
    assert_none_served_again(site, "forbidden", &[&["Cache-Control: ,,max-age=3600,,no-store,,"]]);
}
