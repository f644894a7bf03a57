//! The contract of all backends: the same tests on memory, SQLite and DynamoDB.

mod condition;
mod expiry;
mod fixture;
mod lease;
mod limit;
mod race;
mod random;
mod read;
#[path = "../support/mod.rs"]
mod support;
mod token;
mod transaction;
mod update;
mod use_order;
mod write;

/// Defines each test for each backend.
macro_rules! on_every_backend {
    ($($module:ident { $($test:ident)* })*) => {
        on_every_backend!(@backend memory, $($module { $($test)* })*);
        on_every_backend!(@backend sqlite, $($module { $($test)* })*);
        on_every_backend!(@backend dynamodb, $($module { $($test)* })*);
    };
    (@backend $backend:ident, $($module:ident { $($test:ident)* })*) => {
        mod $backend {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let fixture = crate::fixture::$backend().await;
                    crate::$module::$test(&fixture).await;
                })*
            })*
        }
    };
}

on_every_backend! {
    read {
        reading_an_absent_row_returns_none
        a_batch_is_returned_in_the_order_of_its_keys
        a_query_returns_one_partition_in_byte_order
        a_query_can_be_restricted_by_sort_key
        a_prefix_matches_every_following_character
        a_query_continues_where_its_page_ended
        a_page_ends_after_about_a_megabyte
        a_scan_returns_every_row_once
    }
    write {
        values_of_every_type_are_stored
        a_put_replaces_the_whole_row
        a_delete_of_an_absent_row_succeeds
        a_refused_write_returns_the_stored_row
        rows_of_the_maximum_size_are_stored
        the_sizes_of_all_types_match_the_limit_exactly
    }
    condition {
        conditions_have_the_same_result_on_every_backend
        an_absent_row_counts_as_one_without_attributes
        all_conditions_of_a_write_must_hold
    }
    update {
        all_changes_of_an_update_are_applied
        an_update_creates_a_missing_row
        sums_of_numbers_are_exact
        adding_to_a_set_is_a_union
        an_impossible_change_is_an_error_and_changes_nothing
    }
    transaction {
        all_writes_of_a_transaction_are_applied
        one_false_condition_refuses_all_writes
        the_first_false_condition_is_reported
        an_impossible_write_takes_precedence_over_a_refusal
        the_error_of_an_impossible_write_names_it
        a_transaction_may_have_a_hundred_writes
    }
    token {
        a_transaction_with_a_used_token_is_not_applied_again
        reusing_a_token_for_other_writes_is_an_error
        reusing_a_token_for_another_condition_is_an_error
        the_token_of_a_refused_transaction_may_be_reused
    }
    limit {
        invalid_transactions_are_rejected_with_a_reason
        invalid_reads_are_rejected_with_a_reason
        calls_exactly_at_a_limit_are_accepted
        the_size_limit_of_a_transaction_is_exact
    }
    expiry {
        a_sweep_deletes_exactly_the_rows_that_expired_counts
    }
    use_order {
        rows_are_found_in_the_order_of_their_last_use
        expired_rows_that_were_used_are_found_before_they_are_deleted
    }
    lease {
        a_lease_is_granted_to_one_of_twenty_contenders
        the_row_of_a_lease_has_the_attributes_of_the_wire_format
        only_the_holder_refreshes_and_releases
        an_expired_lease_is_taken_over
        a_guard_refuses_a_transaction_without_the_lease
    }
    race {
        one_of_twenty_concurrent_lease_attempts_succeeds
        concurrent_publishers_write_complete_versions
    }
}
