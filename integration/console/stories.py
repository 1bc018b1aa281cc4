"""Stories of people in the console of a real network: `stories.py FOLDER AGENT AXE [NAME...]`, the folder of an `island dev`, the agent's
program, axe's script, and the stories to run; all of them if none is named. The environment variable ISLAND_PAGE is the address of the
page of its Island.

Prints `ok` when all of them ended well.
"""

import inspect
import sys
import time
import traceback

import cargos
import chats
import hostile
import jobs
import looks
import money
import operators
import owners
import prose
import roles
import sessions
from harness import Browser, Network, sync_playwright

STORIES = [
    sessions.a_visitor_reads_public_pages,
    sessions.a_session_is_kept_from_scripts_and_ends,
    sessions.a_form_meets_the_end_of_its_session,
    sessions.another_site_changes_nothing,
    sessions.the_console_works_without_encryption,
    chats.a_newcomer_gets_a_streaming_reply_with_one_click,
    chats.a_reply_goes_on_through_a_reload,
    chats.a_reply_goes_on_through_a_restart_of_the_coordinator,
    chats.a_reply_is_stopped_edited_and_tried_again,
    chats.a_turn_without_a_reply_is_not_sent_again,
    chats.two_models_are_compared,
    chats.pictures_and_reasoning,
    chats.pictures_are_pasted_and_removed,
    prose.replies_are_formatted_while_they_arrive,
    prose.the_text_of_a_job_is_formatted,
    prose.formats_are_made_of_text_alone,
    cargos.every_kind_of_cargo_runs_from_its_form,
    cargos.files_of_ones_own_are_read,
    cargos.models_of_every_engine_run_from_their_forms,
    cargos.calls_of_a_page_work,
    cargos.a_picture_is_seen_while_it_is_painted,
    jobs.a_waiting_job_explains_itself_and_is_cancelled,
    jobs.an_ended_job_keeps_its_timeline,
    jobs.steps_have_the_time_of_the_network,
    jobs.an_open_list_shows_a_new_job,
    jobs.an_open_list_meets_the_end_of_its_session,
    sessions.keys_are_made_and_revoked,
    operators.an_operator_runs_the_network,
    operators.an_operator_cancels_a_job_of_another_account,
    operators.an_operator_corrects_credits_and_closes_an_account,
    operators.an_operator_reviews_and_switches_cargos,
    operators.an_operator_takes_invitations_and_notices_back,
    operators.an_operator_finds_dashboards_and_accounts,
    money.usage_has_the_numbers_of_a_job,
    money.the_ledger_has_every_movement_of_a_job,
    money.the_market_shows_prices_by_hour,
    looks.days_are_those_of_the_network,
    roles.roles_are_apart,
    owners.an_owner_pairs_an_island,
    owners.an_operator_suspends_an_island,
    owners.an_owner_pauses_an_island_remotely,
    owners.an_owner_drains_an_island_remotely,
    owners.an_open_page_of_an_island_shows_its_jobs,
    owners.the_page_of_a_machine_shows_its_work,
    hostile.hostile_text_stays_text,
    hostile.a_line_of_megabytes_is_shown_in_part,
    looks.pages_are_accessible,
    looks.the_first_view_is_small,
]
# Stories that need a network of their own run only by their names.
APART = [sessions.a_person_signs_in_with_a_provider, sessions.a_session_needs_encryption]


def main():
    network, only = Network(sys.argv[1]), sys.argv[4:]
    with sync_playwright() as playwright:
        browser = Browser(playwright, network)
        given = {"browser": browser, "network": network, "agent": sys.argv[2], "axe": open(sys.argv[3]).read()}
        failed = []
        for story in STORIES + [story for story in APART if story.__name__ in only]:
            if only and story.__name__ not in only:
                continue
            begun = time.monotonic()
            try:
                story(**{name: given[name] for name in inspect.signature(story).parameters})
                browser.assert_no_faults()
            except Exception:  # One run shows all stories that fail.
                traceback.print_exc()
                failed.append(story.__name__)
                browser.faults.clear()
            browser.close_pages()
            print(f"{story.__name__}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
        browser.chromium.close()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    print("ok")


if __name__ == "__main__":
    main()
