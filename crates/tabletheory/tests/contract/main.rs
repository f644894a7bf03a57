//! One contract for all backends: the same stories on memory, on SQLite and on DynamoDB.

mod condition;
mod expiry;
mod fixture;
mod limit;
mod race;
mod random;
mod read;
#[path = "../support/mod.rs"]
mod support;
mod token;
mod transaction;
mod update;
mod write;

/// Makes a test of each story for each backend.
macro_rules! on_every_backend {
    ($($module:ident { $($story:ident)* })*) => {
        on_every_backend!(@backend memory, $($module { $($story)* })*);
        on_every_backend!(@backend sqlite, $($module { $($story)* })*);
        on_every_backend!(@backend dynamodb, $($module { $($story)* })*);
    };
    (@backend $backend:ident, $($module:ident { $($story:ident)* })*) => {
        mod $backend {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $story() {
                    let fixture = crate::fixture::$backend().await;
                    crate::$module::$story(&fixture).await;
                })*
            })*
        }
    };
}

on_every_backend! {
    read {
        an_absent_row_is_none
        a_batch_comes_in_the_order_that_was_asked_for
        a_query_sees_one_partition_in_the_order_of_bytes
        a_query_can_be_narrowed_by_sort_key
        a_prefix_admits_every_character_after_it
        a_query_goes_on_where_its_page_ended
        a_page_ends_after_about_a_megabyte
        a_scan_meets_every_row_once
    }
    write {
        every_type_of_value_comes_back
        a_put_replaces_the_whole_row
        a_delete_of_an_absent_row_succeeds
        a_refused_write_shows_the_row_that_was_there
        rows_of_the_largest_size_are_kept
        values_of_every_type_fill_a_row_to_the_last_byte
    }
    condition {
        conditions_mean_the_same_everywhere
        an_absent_row_is_one_without_attributes
        conditions_of_one_write_add_up
    }
    update {
        changes_see_the_row_as_it_was
        an_update_makes_a_missing_row
        numbers_are_exact
        sets_of_every_type_are_united
        what_cannot_be_changed_is_an_error_and_changes_nothing
    }
    transaction {
        all_writes_happen_together
        one_refusal_stops_every_write
        the_first_refusal_is_the_one_reported
        a_write_that_cannot_be_done_outweighs_a_refusal
        a_write_that_cannot_be_done_is_named
        a_hundred_writes_fit
    }
    token {
        a_repeated_token_is_not_applied_again
        a_token_with_other_writes_is_an_error
        a_token_with_another_condition_is_an_error
        a_refused_token_may_be_tried_again
    }
    limit {
        malformed_transactions_are_refused_with_a_reason
        malformed_reads_are_refused_with_a_reason
        what_is_at_a_limit_is_allowed
        a_transaction_may_be_filled_to_the_last_byte
    }
    expiry {
        a_sweep_deletes_what_it_said_and_nothing_that_is_in_use
    }
    race {
        of_twenty_contenders_one_wins_the_lease
        publishers_leave_whole_generations
    }
}
