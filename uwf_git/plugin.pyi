from uwf_cli import changed_files as changed_files
from uwf_cli import completers as completers
from uwf_cli import definitions as definitions
from uwf_cli import options as options
from uwf_cli import plot as _charts
from uwf_cli import resolve as resolve
from uwf_cli import streams as streams
from uwf_cli import terminal as terminal
from uwf_cli.call import Call as Call
from uwf_cli.call import Failed as _CommandFailed
from uwf_cli.call import Result as _CommandResult
from uwf_cli.call import call as _call_command
from uwf_cli.call import calling as calling
from uwf_cli.call_process import LARGEST as _LARGEST_OUTPUT
from uwf_cli.call_process import TooLarge as _OutputTooLarge
from uwf_cli.call_process import call_in_process as call_in_process
from uwf_cli.call_process import spawn_command as spawn_command
from uwf_cli.command import Command as _CommandClass
from uwf_cli.command import Number as Number
from uwf_cli.command import command as command
from uwf_cli.command import group as _command_group
from uwf_cli.commands.spending import labels as _bar_labels
from uwf_cli.commands.spending import measure as _measure_spending
from uwf_cli.commands.spending import unit_of as _spending_unit
from uwf_cli.exchange import Meter as _ProgressMeter
from uwf_cli.exchange import exchange_for as exchange_for
from uwf_cli.exchange import git_for as git_for
from uwf_cli.failures import Failures as Failures
from uwf_cli.failures import describe as _describe_failure
from uwf_cli.failures import print_error as print_error
from uwf_cli.failures import reported as _failures_reported
from uwf_cli.files import write_text as write_text
from uwf_cli.files import write_whole as write_whole
from uwf_cli.invocation import Invocation as Invocation
from uwf_cli.invocation import adopt_news as adopt_news
from uwf_cli.invocation import find_head as find_head
from uwf_cli.invocation import find_thread as find_thread
from uwf_cli.invocation import itself as itself
from uwf_cli.output import ago as _time_ago
from uwf_cli.output import as_json as as_json
from uwf_cli.output import as_yaml as as_yaml
from uwf_cli.output import branches_text as branches_text
from uwf_cli.output import dollars as _in_dollars
from uwf_cli.output import exact as _exact_time
from uwf_cli.page import addresses as _page_addresses
from uwf_cli.page import ansi as ansi
from uwf_cli.page import markup as markup
from uwf_cli.page.addresses import STATUS as _STATUS_FIELD
from uwf_cli.page.addresses import Page as Page
from uwf_cli.page.addresses import PageRequest as PageRequest
from uwf_cli.page.markup import document as document
from uwf_cli.page.markup import tag as tag
from uwf_cli.selection import Selection as _ThreadSelection
from uwf_cli.selection import chosen_threads as chosen_threads
from uwf_cli.selection import short_ids as short_ids
from uwf_cli.selection import threads as _selected_threads
from uwf_cli.starting import begin as _begin_thread
from uwf_cli.starting import require_agent as require_agent
from uwf_cli.stepping import exchanged as _step_exchanged
from uwf_cli.stepping import outcome_line as outcome_line
from uwf_cli.stepping import outcome_value as outcome_value
from uwf_cli.stepping import run_one as run_one
from uwf_cli.views import Column as _TableColumn
from uwf_cli.views import Record as Record
from uwf_cli.views import Table as Table
from uwf_cli.views import View as View
from uwf_cli.watching import lines as _step_lines

from uwf_git.api import control as control
from uwf_git.api.check import Report as Report
from uwf_git.api.check import check as check
from uwf_git.api.check import check_tree as check_tree
from uwf_git.api.check import with_signatures as with_signatures
from uwf_git.api.cockpit.board import board as board
from uwf_git.api.cockpit.board import board_head as board_head
from uwf_git.api.cockpit.board import board_threads as board_threads
from uwf_git.api.cockpit.compare import COMPARED as COMPARED
from uwf_git.api.cockpit.compare import code_of_both as code_of_both
from uwf_git.api.cockpit.compare import code_since as code_since
from uwf_git.api.cockpit.compare import compare as _compare_threads
from uwf_git.api.cockpit.graph import branch_ways as branch_ways
from uwf_git.api.cockpit.graph import end_of as _node_of_end
from uwf_git.api.cockpit.graph import graph_value as graph_value
from uwf_git.api.cockpit.graph import node_label as node_label
from uwf_git.api.cockpit.graph import nodes_taken as nodes_taken
from uwf_git.api.cockpit.inbox import InboxEntry as InboxEntry
from uwf_git.api.cockpit.inbox import groups as _inbox_groups
from uwf_git.api.cockpit.inbox import inbox as inbox
from uwf_git.api.cockpit.inbox import inbox_entries as inbox_entries
from uwf_git.api.cockpit.inbox import inbox_items as inbox_items
from uwf_git.api.cockpit.inbox import queued_threads as queued_threads
from uwf_git.api.cockpit.matrix import matrix as _branch_matrix
from uwf_git.api.cockpit.news import news as _thread_news
from uwf_git.api.cockpit.patch import patch_files as patch_files
from uwf_git.api.cockpit.place import places as _node_places
from uwf_git.api.cockpit.retry import fork_to_retry as fork_to_retry
from uwf_git.api.cockpit.retry import plan_retry as plan_retry
from uwf_git.api.cockpit.retry import to_retry as to_retry
from uwf_git.api.cockpit.rows import rows_of as _thread_rows
from uwf_git.api.cockpit.run import SHOWN as _STEPS_SHOWN
from uwf_git.api.cockpit.run import brief as brief
from uwf_git.api.cockpit.run import name_of as _author_name
from uwf_git.api.cockpit.run import run as _run_view
from uwf_git.api.cockpit.step import TABS as _STEP_TABS
from uwf_git.api.cockpit.step import Wanted as _WantedParts
from uwf_git.api.cockpit.step import attempt as _attempt_view
from uwf_git.api.cockpit.step import how_found as how_found
from uwf_git.api.cockpit.step import plain as _plain_text
from uwf_git.api.cockpit.step import step as _step_view
from uwf_git.api.cockpit.weight import LARGEST_IN_A_LINE as LARGEST_IN_A_LINE
from uwf_git.api.cockpit.weight import TURNS as _TURNS_SHOWN
from uwf_git.api.cockpit.weight import weight as _node_weight
from uwf_git.api.cockpit.workflow import runs_of as _workflow_runs
from uwf_git.api.cockpit.workflow import used_workflow as used_workflow
from uwf_git.api.cockpit.workflow import workflow_stats as workflow_stats
from uwf_git.api.compilers import compiler as _compiler_of
from uwf_git.api.conversation import next_prompt as next_prompt
from uwf_git.api.dispatch import StepOptions as StepOptions
from uwf_git.api.exchange import is_new as _is_new_remote
from uwf_git.api.exchange import push as _push_threads
from uwf_git.api.fan_out import branches_of as branches_of
from uwf_git.api.fan_out import waits_for_branches as waits_for_branches
from uwf_git.api.filters import parse_filters as parse_filters
from uwf_git.api.filters import views as _saved_views
from uwf_git.api.forges import client_for as client_for
from uwf_git.api.forges import client_of_issue as client_of_issue
from uwf_git.api.fork import fork as _fork_thread
from uwf_git.api.listing import ACTIVE as _ACTIVE_STATES
from uwf_git.api.listing import SORTS as SORTS
from uwf_git.api.listing import TO_STEP as TO_STEP
from uwf_git.api.listing import Filters as _ThreadFilters
from uwf_git.api.listing import ListedThread as ListedThread
from uwf_git.api.listing import depth_first as depth_first
from uwf_git.api.listing import in_order as in_order
from uwf_git.api.listing import left_out_line as left_out_line
from uwf_git.api.listing import listed as _list_threads
from uwf_git.api.listing import nested as _nest_threads
from uwf_git.api.listing import thread_items as thread_items
from uwf_git.api.listing import without_quiet_branches as without_quiet_branches
from uwf_git.api.logged_session import LoggedExchange as LoggedExchange
from uwf_git.api.logged_session import LoggedSession as LoggedSession
from uwf_git.api.logged_session import describe_stored as describe_stored
from uwf_git.api.logged_session import logged_original as logged_original
from uwf_git.api.logged_session import session_state as session_state
from uwf_git.api.logged_session import store_session as store_session
from uwf_git.api.outcome import code_left as _code_at_end
from uwf_git.api.packing import collect as _collect_store
from uwf_git.api.preflight import require_played as require_played
from uwf_git.api.preflight import require_ready as require_ready
from uwf_git.api.preflight import require_ready_thread as require_ready_thread
from uwf_git.api.progress import steering_value as steering_value
from uwf_git.api.progress import step_value as step_value
from uwf_git.api.published_requirements import unmet_requirements as unmet_requirements
from uwf_git.api.removal import delete_there as _delete_threads_there
from uwf_git.api.removal import expire as _expire_thread
from uwf_git.api.removal import remove as _remove_thread
from uwf_git.api.run import Options as _RunOptions
from uwf_git.api.run import run as _run_thread
from uwf_git.api.run import step as _step_once
from uwf_git.api.settings import ready_agents as ready_agents
from uwf_git.api.spending import failure_causes as failure_causes
from uwf_git.api.spending import runs_of_heads as runs_of_heads
from uwf_git.api.spending import sums as _spending_sums
from uwf_git.api.start import Start as _ThreadStart
from uwf_git.api.start import warn_of_limit as warn_of_limit
from uwf_git.api.store import open_instance as open_instance
from uwf_git.api.transcript import Transcript as Transcript
from uwf_git.api.transcript import steps_of as steps_of
from uwf_git.api.versions import bundle_of as bundle_of
from uwf_git.api.versions import history_values as history_values
from uwf_git.api.versions import past as _past_versions
from uwf_git.api.versions import past_hash as past_hash
from uwf_git.api.versions import registered as _registered_versions
from uwf_git.api.versions import unified as _unified_diff
from uwf_git.api.versions import use_of as use_of
from uwf_git.api.workflows import FOLDER as FOLDER
from uwf_git.api.workflows import SUFFIXES as SUFFIXES
from uwf_git.api.workflows import ResolvedWorkflow as ResolvedWorkflow
from uwf_git.api.workflows import at_version as at_version
from uwf_git.api.workflows import file_names as file_names
from uwf_git.api.workflows import stored_workflow as stored_workflow
from uwf_git.api.workflows import version_of as version_of
from uwf_git.api.workflows import workflow_file as workflow_file
from uwf_git.base import errors as errors
from uwf_git.base import extensions as extensions
from uwf_git.base import lifetime as lifetime
from uwf_git.base import log as log
from uwf_git.base import markdown as markdown
from uwf_git.base import system as system
from uwf_git.base import thread_states as thread_states
from uwf_git.base.errors import Absent as Absent
from uwf_git.base.errors import AgentFailed as AgentFailed
from uwf_git.base.errors import Busy as Busy
from uwf_git.base.errors import CompletedWithFailures as CompletedWithFailures
from uwf_git.base.errors import DataLoadFailed as DataLoadFailed
from uwf_git.base.errors import Declined as Declined
from uwf_git.base.errors import Failure as Failure
from uwf_git.base.errors import HeadMoved as HeadMoved
from uwf_git.base.errors import Invalid as Invalid
from uwf_git.base.errors import Killed as Killed
from uwf_git.base.errors import LimitExceeded as LimitExceeded
from uwf_git.base.errors import NotFound as NotFound
from uwf_git.base.errors import NothingToVerify as NothingToVerify
from uwf_git.base.errors import NoTransition as NoTransition
from uwf_git.base.errors import NotRunning as NotRunning
from uwf_git.base.errors import NotSupportedClassicWorkflow as NotSupportedClassicWorkflow
from uwf_git.base.errors import OutOfRounds as OutOfRounds
from uwf_git.base.errors import OutputFailed as OutputFailed
from uwf_git.base.errors import Paused as Paused
from uwf_git.base.errors import RemoteFailed as RemoteFailed
from uwf_git.base.errors import RequirementUnmet as RequirementUnmet
from uwf_git.base.errors import Rewritten as Rewritten
from uwf_git.base.errors import SigningFailed as SigningFailed
from uwf_git.base.errors import StoreDamaged as StoreDamaged
from uwf_git.base.errors import StoreUnwritable as StoreUnwritable
from uwf_git.base.errors import Throttled as Throttled
from uwf_git.base.errors import TimedOut as TimedOut
from uwf_git.base.errors import Unavailable as Unavailable
from uwf_git.base.errors import Undecided as Undecided
from uwf_git.base.errors import UnknownPromptId as UnknownPromptId
from uwf_git.base.errors import UnknownWord as UnknownWord
from uwf_git.base.errors import UnknownWorkflow as UnknownWorkflow
from uwf_git.base.errors import Untrusted as Untrusted
from uwf_git.base.errors import Usage as Usage
from uwf_git.base.errors import UwfError as UwfError
from uwf_git.base.errors import ValidationFailed as ValidationFailed
from uwf_git.base.errors import Waiting as Waiting
from uwf_git.base.errors import WorkspaceFailed as WorkspaceFailed
from uwf_git.base.errors import Worse as Worse
from uwf_git.base.errors import error_of as error_of
from uwf_git.base.errors import failure_of as failure_of
from uwf_git.base.extensions import MONITOR_TOKEN as MONITOR_TOKEN
from uwf_git.base.extensions import ActionPlan as ActionPlan
from uwf_git.base.extensions import AgentProgram as AgentProgram
from uwf_git.base.extensions import Command as Command
from uwf_git.base.extensions import ConfigSection as ConfigSection
from uwf_git.base.extensions import Dispatcher as Dispatcher
from uwf_git.base.extensions import Endpoint as Endpoint
from uwf_git.base.extensions import EndpointAnswer as EndpointAnswer
from uwf_git.base.extensions import Export as Export
from uwf_git.base.extensions import Extension as Extension
from uwf_git.base.extensions import Hindrance as Hindrance
from uwf_git.base.extensions import Metric as Metric
from uwf_git.base.extensions import Pages as Pages
from uwf_git.base.extensions import RefKind as RefKind
from uwf_git.base.extensions import Runner as Runner
from uwf_git.base.extensions import Sample as Sample
from uwf_git.base.extensions import ThreadAction as ThreadAction
from uwf_git.base.extensions import WorkState as WorkState
from uwf_git.base.extensions import agent_programs as agent_programs
from uwf_git.base.extensions import config_section as config_section
from uwf_git.base.extensions import dispatchers as dispatchers
from uwf_git.base.extensions import load as _load_extension
from uwf_git.base.extras import install_hint as install_hint
from uwf_git.base.junit import ERROR as ERROR
from uwf_git.base.junit import FAILED as FAILED
from uwf_git.base.junit import SKIPPED as _CASE_SKIPPED
from uwf_git.base.junit import CaseOutcome as CaseOutcome
from uwf_git.base.junit import junit as junit
from uwf_git.base.lifetime import deferred as _signals_deferred
from uwf_git.base.terminal import drawing as _terminal_drawing
from uwf_git.base.terminal import undisturbed as _terminal_undisturbed
from uwf_git.base.text import closest as _closest_names
from uwf_git.base.text import counted as counted
from uwf_git.base.text import cut as _cut_text
from uwf_git.base.text import duration as _duration_text
from uwf_git.base.text import encodable as encodable
from uwf_git.base.text import fenced as fenced
from uwf_git.base.text import harmless as harmless
from uwf_git.base.text import iso as iso
from uwf_git.base.text import last_line as last_line
from uwf_git.base.text import nearest as nearest
from uwf_git.base.text import numbered as _numbered_lines
from uwf_git.base.text import one_line as one_line
from uwf_git.base.text import printable as printable
from uwf_git.base.text import settled as _settled_text
from uwf_git.base.text import shortened as shortened
from uwf_git.base.text import without_colours as without_colours
from uwf_git.base.text import written_out as written_out
from uwf_git.base.thread_states import ThreadState as ThreadState
from uwf_git.base.timelimit import BudgetExceeded as _TimeBudgetExceeded
from uwf_git.base.timelimit import TimeExceeded as TimeExceeded
from uwf_git.base.timelimit import time_limit as time_limit
from uwf_git.base.version import VERSION as VERSION
from uwf_git.config import resolve as _known_agents
from uwf_git.config.edit import with_setting as with_setting
from uwf_git.config.forges import locate as _locate_remote
from uwf_git.config.policy import FETCH as _FETCH_TOOL
from uwf_git.config.policy import RUN as _RUN_TOOL
from uwf_git.config.policy import SPEAKER as SPEAKER
from uwf_git.config.policy import WRITING as _WRITING_TOOLS
from uwf_git.config.policy import ToolPolicy as ToolPolicy
from uwf_git.config.policy import parse_policy as parse_policy
from uwf_git.config.policy import reading_only as reading_only
from uwf_git.config.project import FOLDER as _SETUP_FOLDER
from uwf_git.config.project import ProjectSettings as ProjectSettings
from uwf_git.config.read import load_config as load_config
from uwf_git.config.reader import Reader as _ConfigReader
from uwf_git.config.resolve import AgentOptions as AgentOptions
from uwf_git.config.resolve import agent_options as agent_options
from uwf_git.config.resolve import hint_to_add as hint_to_add
from uwf_git.config.resolve import known_agent as known_agent
from uwf_git.config.resolve import known_names as known_names
from uwf_git.config.resolve import named_agent as named_agent
from uwf_git.config.resolve import narrowed as _narrowed_options
from uwf_git.config.resolve import overriding as _overriding_options
from uwf_git.config.resolve import resolve_agent as resolve_agent
from uwf_git.config.resolve import resolve_model as resolve_model
from uwf_git.config.secrets import REDACTED as REDACTED
from uwf_git.config.secrets import Redactor as Redactor
from uwf_git.config.settings import FILE as _CONFIG_FILE
from uwf_git.config.settings import AgentConfig as AgentConfig
from uwf_git.config.settings import Config as Config
from uwf_git.config.settings import NamedAgent as NamedAgent
from uwf_git.config.settings import Price as Price
from uwf_git.config.settings import Rates as Rates
from uwf_git.config.settings import expanded as _expanded_path
from uwf_git.config.settings import parse_command as parse_command
from uwf_git.engine import calls as _engine_calls
from uwf_git.engine import conversation as _conversations
from uwf_git.engine import trusted_code as trusted_code
from uwf_git.engine import watching as watching
from uwf_git.engine.agent_code import ends_refused as ends_refused
from uwf_git.engine.branch_states import branch_states as branch_states
from uwf_git.engine.budget import COST as _COST_LIMIT
from uwf_git.engine.budget import OPTIONS as _BUDGET_OPTIONS
from uwf_git.engine.budget import Budgets as Budgets
from uwf_git.engine.budget import BudgetState as BudgetState
from uwf_git.engine.budget import budget_reached as budget_reached
from uwf_git.engine.budget import limits as _budget_limits
from uwf_git.engine.budget import parse_option as _parse_budget_option
from uwf_git.engine.budget import raise_if_used_up as raise_if_used_up
from uwf_git.engine.budget import standing_of as standing_of
from uwf_git.engine.budget import used_up as _used_up_budget
from uwf_git.engine.call_answer import command_of as command_of
from uwf_git.engine.calls import CallState as CallState
from uwf_git.engine.calls import Request as _CallRequest
from uwf_git.engine.calls import arrivals as _call_arrivals
from uwf_git.engine.calls import find as _find_call
from uwf_git.engine.calls import root_of as root_of
from uwf_git.engine.census import FAILURES as _CENSUS_FAILURES
from uwf_git.engine.census import census_of as census_of
from uwf_git.engine.census import census_text as census_text
from uwf_git.engine.default_agent import refuse_to_make_up as refuse_to_make_up
from uwf_git.engine.forks import begun_at as begun_at
from uwf_git.engine.forks import parents_of as parents_of
from uwf_git.engine.human_turn import HumanTurn as HumanTurn
from uwf_git.engine.human_turn import human_turn as _human_turn_of
from uwf_git.engine.inbox import answer as _answer_turn
from uwf_git.engine.inbox import remark as _remark_on
from uwf_git.engine.inbox import say as _say_to
from uwf_git.engine.kit.agent import Agent as Agent
from uwf_git.engine.kit.agent import AttemptFailed as AttemptFailed
from uwf_git.engine.kit.agent import Conversation as Conversation
from uwf_git.engine.kit.agent import ModelAgent as ModelAgent
from uwf_git.engine.kit.agent import detail_of as detail_of
from uwf_git.engine.kit.agent import judged as _judged_answer
from uwf_git.engine.kit.agent import read_output as read_output
from uwf_git.engine.kit.agent import require_program as require_program
from uwf_git.engine.kit.arguments import ModelArguments as ModelArguments
from uwf_git.engine.kit.arguments import read_asking as read_asking
from uwf_git.engine.kit.arguments import read_options as read_options
from uwf_git.engine.kit.candidate import Verdict as _AnswerVerdict
from uwf_git.engine.kit.candidate import with_all_fields as with_all_fields
from uwf_git.engine.kit.chat import Chat as Chat
from uwf_git.engine.kit.chat import Completion as Completion
from uwf_git.engine.kit.chat import ContextTooLong as ContextTooLong
from uwf_git.engine.kit.chat import model_alias as model_alias
from uwf_git.engine.kit.chat import resolve_endpoint as resolve_endpoint
from uwf_git.engine.kit.coerce import coerce as _coerce_value
from uwf_git.engine.kit.context import SEEN as _SEEN_LENGTH
from uwf_git.engine.kit.context import SILENCE as _SILENCE_LIMIT
from uwf_git.engine.kit.context import Context as Context
from uwf_git.engine.kit.context import KeptSession as KeptSession
from uwf_git.engine.kit.context import PastRun as PastRun
from uwf_git.engine.kit.context import Reply as Reply
from uwf_git.engine.kit.context import Resume as Resume
from uwf_git.engine.kit.context import SessionState as SessionState
from uwf_git.engine.kit.context import last_seen as last_seen
from uwf_git.engine.kit.data import wanted as _wanted_data
from uwf_git.engine.kit.extract import ExpectedOutput as ExpectedOutput
from uwf_git.engine.kit.extract import ExtractionFailed as ExtractionFailed
from uwf_git.engine.kit.extract import failed_with as failed_with
from uwf_git.engine.kit.extract import judge as _judge_answer
from uwf_git.engine.kit.extract import sum_tokens as sum_tokens
from uwf_git.engine.kit.extract import sum_usage as sum_usage
from uwf_git.engine.kit.form import FormField as FormField
from uwf_git.engine.kit.form import chosen_option as chosen_option
from uwf_git.engine.kit.form import fields_of as fields_of
from uwf_git.engine.kit.form import read_typed as read_typed
from uwf_git.engine.kit.form import text_of as text_of
from uwf_git.engine.kit.format import describe as _describe_schema
from uwf_git.engine.kit.format import format_instruction as format_instruction
from uwf_git.engine.kit.format import render_frontmatter as render_frontmatter
from uwf_git.engine.kit.memory import carry_on as carry_on
from uwf_git.engine.kit.memory import is_full as is_full
from uwf_git.engine.kit.printed_answer import judge_printed as judge_printed
from uwf_git.engine.kit.prompt import commands as _prompt_commands
from uwf_git.engine.kit.prompt import happened as _happened_before
from uwf_git.engine.kit.prompt import instruction_now as instruction_now
from uwf_git.engine.kit.prompt import role_of as role_of
from uwf_git.engine.kit.prompt import turns_of as turns_of
from uwf_git.engine.kit.prompt import unforged as _unforged_text
from uwf_git.engine.kit.record import Recorder as Recorder
from uwf_git.engine.kit.record import broken_off as broken_off
from uwf_git.engine.kit.record import kept_reply as kept_reply
from uwf_git.engine.kit.record import sound as _sound_turns
from uwf_git.engine.lineage import RelatedThread as RelatedThread
from uwf_git.engine.lineage import kin as _related_threads
from uwf_git.engine.lineage import parents as _parent_threads
from uwf_git.engine.next_turn import decide_at as decide_at
from uwf_git.engine.next_turn import outlook as _thread_outlook
from uwf_git.engine.next_turn import raise_if_stuck as raise_if_stuck
from uwf_git.engine.outcome import Outcome as Outcome
from uwf_git.engine.outcome import Summary as _ThreadSummary
from uwf_git.engine.outcome import summary as _summarise_thread
from uwf_git.engine.outcome import summary_of as summary_of
from uwf_git.engine.past_prompt import prompt_of_step as prompt_of_step
from uwf_git.engine.pause import pause as _pause_thread
from uwf_git.engine.pause import paused_threads as paused_threads
from uwf_git.engine.pause import raise_if_paused as raise_if_paused
from uwf_git.engine.pause import resume as _resume_thread
from uwf_git.engine.performer import agent_command as agent_command
from uwf_git.engine.performer import command_run as command_run
from uwf_git.engine.performer import embedded as _embedded_agent
from uwf_git.engine.performer import environment as _agent_environment
from uwf_git.engine.performer import hash_printed as hash_printed
from uwf_git.engine.performer import missing_price_reason as missing_price_reason
from uwf_git.engine.performer import provider_of as provider_of
from uwf_git.engine.permission_requests import PermissionDesk as PermissionDesk
from uwf_git.engine.permission_requests import line_of as _permission_line
from uwf_git.engine.permission_requests import permission_requests as permission_requests
from uwf_git.engine.permission_requests import request_lines as _permission_lines
from uwf_git.engine.permission_requests import request_value as _permission_value
from uwf_git.engine.permission_requests import wish_value as _permission_wish_value
from uwf_git.engine.persons_steps import persons_steps as persons_steps
from uwf_git.engine.presented import JudgedCode as JudgedCode
from uwf_git.engine.presented import LastOutput as LastOutput
from uwf_git.engine.presented import Presented as Presented
from uwf_git.engine.presented import Verdict as _CodeVerdict
from uwf_git.engine.presented import command_at as command_at
from uwf_git.engine.presented import presented as _presented_code
from uwf_git.engine.presented import presented_at as presented_at
from uwf_git.engine.presented import raise_if_unseen as raise_if_unseen
from uwf_git.engine.presented import warn_once as warn_once
from uwf_git.engine.progress import Freshness as Freshness
from uwf_git.engine.progress import Watch as Watch
from uwf_git.engine.slots import agent_slot as agent_slot
from uwf_git.engine.spending import DEEPEST as DEEPEST
from uwf_git.engine.spending import Run as _SpendingRun
from uwf_git.engine.spending import Tokens as Tokens
from uwf_git.engine.spending import Totals as _SpendingTotals
from uwf_git.engine.spending import extracting_model as extracting_model
from uwf_git.engine.spending import price_of as price_of
from uwf_git.engine.spending import spent as _spent_in
from uwf_git.engine.spending import together as _spent_together
from uwf_git.engine.spending import tokens_in as tokens_in
from uwf_git.engine.spending import tokens_of_step as tokens_of_step
from uwf_git.engine.state import state as _thread_state_value
from uwf_git.engine.steering import fate as _remark_fate
from uwf_git.engine.step import kill as _kill_thread
from uwf_git.engine.step import step as _step_thread
from uwf_git.engine.step import step_without_hooks as step_without_hooks
from uwf_git.engine.step_parts import Changes as _StepChanges
from uwf_git.engine.step_parts import Recipient as Recipient
from uwf_git.engine.step_parts import StepParts as StepParts
from uwf_git.engine.thread_spending import account as _spending_account
from uwf_git.engine.thread_spending import nested as _nested_spending
from uwf_git.engine.thread_spending import runs as _spending_runs
from uwf_git.engine.thread_state import ThreadStates as ThreadStates
from uwf_git.engine.thread_state import ended_state as ended_state
from uwf_git.engine.thread_state import thread_state as thread_state
from uwf_git.engine.trusted_code import require_trusted as require_trusted
from uwf_git.engine.trusted_code import trust_code as trust_code
from uwf_git.engine.turn.table import settle as _settle_thread
from uwf_git.engine.waits import waits_in as waits_in
from uwf_git.forge.address import Forge as Forge
from uwf_git.forge.address import ForgeRepository as ForgeRepository
from uwf_git.forge.address import parse_issue as parse_issue
from uwf_git.forge.address import parse_repository as parse_repository
from uwf_git.forge.answers import Change as _ForgeChange
from uwf_git.forge.client import ForgeClient as ForgeClient
from uwf_git.forge.feedback import Feedback as Feedback
from uwf_git.forge.feedback_text import FeedbackEntry as FeedbackEntry
from uwf_git.forge.feedback_text import feedback_entries as feedback_entries
from uwf_git.forge.feedback_text import feedback_text as feedback_text
from uwf_git.forge.feedback_text import place_of_feedback as place_of_feedback
from uwf_git.forge.marks import MARK as _FORGE_MARK
from uwf_git.forge.marks import key_at_end as key_at_end
from uwf_git.forge.marks import mark_of as mark_of
from uwf_git.forge.rest import ForgeDeclined as ForgeDeclined
from uwf_git.forge.rest import ForgeUnavailable as ForgeUnavailable
from uwf_git.forge.rest import Hints as _ForgeHints
from uwf_git.forge.review_client import ReviewClient as ReviewClient
from uwf_git.format import builtin as _schemas
from uwf_git.format import cbor as cbor
from uwf_git.format import document as _documents
from uwf_git.format import endings as endings
from uwf_git.format import words as words
from uwf_git.format import yaml12 as yaml12
from uwf_git.format.amounts import LIMITS as _AMOUNT_LIMITS
from uwf_git.format.amounts import moment as moment
from uwf_git.format.amounts import parse_budget as parse_budget
from uwf_git.format.amounts import parse_duration as parse_duration
from uwf_git.format.casting import Cast as Cast
from uwf_git.format.casting import CastRole as CastRole
from uwf_git.format.casting import cast_of as cast_of
from uwf_git.format.cbor import TOO_LONG as _PAYLOAD_TOO_LONG
from uwf_git.format.cbor import normalise as _normalise_payload
from uwf_git.format.document import MAX_BYTES as _MAX_DOCUMENT_BYTES
from uwf_git.format.document import Document as Document
from uwf_git.format.document import InvalidYaml as InvalidYaml
from uwf_git.format.document import Mark as _SourceMark
from uwf_git.format.document import read_bytes as read_bytes
from uwf_git.format.document import unreadable as _unreadable_document
from uwf_git.format.edges import Transition as Transition
from uwf_git.format.endings import MAX_ROUNDS as MAX_ROUNDS
from uwf_git.format.fields import Fields as _FieldReader
from uwf_git.format.fields import kind_of as kind_of
from uwf_git.format.fields import own_items as own_items
from uwf_git.format.findings import Finding as Finding
from uwf_git.format.findings import Findings as Findings
from uwf_git.format.ids import NO_TIME as NO_TIME
from uwf_git.format.ids import Hash as Hash
from uwf_git.format.ids import ThreadId as ThreadId
from uwf_git.format.ids import derived_id as derived_id
from uwf_git.format.ids import is_hash as is_hash
from uwf_git.format.ids import is_thread_id as is_thread_id
from uwf_git.format.ids import milliseconds_of as milliseconds_of
from uwf_git.format.ids import name_problem as name_problem
from uwf_git.format.ids import new_thread_id as new_thread_id
from uwf_git.format.ids import parse_thread_id as parse_thread_id
from uwf_git.format.json_text import read_json as read_json
from uwf_git.format.kinds import COMPLETE as _COMPLETE_CONDITION
from uwf_git.format.kinds import CONTENT as _CONTENT_FIELD
from uwf_git.format.kinds import EXTRACT as EXTRACT
from uwf_git.format.kinds import HUMAN as HUMAN
from uwf_git.format.kinds import REHEARSE as REHEARSE
from uwf_git.format.kinds import SUBWORKFLOW as SUBWORKFLOW
from uwf_git.format.kinds import CallCounts as CallCounts
from uwf_git.format.kinds import Detail as Detail
from uwf_git.format.kinds import PackageNode as PackageNode
from uwf_git.format.kinds import Revision as Revision
from uwf_git.format.kinds import Role as Role
from uwf_git.format.kinds import Session as Session
from uwf_git.format.kinds import SessionFile as SessionFile
from uwf_git.format.kinds import Start as _StartNode
from uwf_git.format.kinds import Step as Step
from uwf_git.format.kinds import StepContext as StepContext
from uwf_git.format.kinds import TurnRecord as TurnRecord
from uwf_git.format.kinds import Usage as _TokenUsage
from uwf_git.format.kinds import Workflow as Workflow
from uwf_git.format.kinds import asks_human as asks_human
from uwf_git.format.kinds import parse_attempt as parse_attempt
from uwf_git.format.kinds import parse_detail as parse_detail
from uwf_git.format.kinds import parse_session as parse_session
from uwf_git.format.kinds import parse_start as parse_start
from uwf_git.format.kinds import parse_step as parse_step
from uwf_git.format.kinds import parse_turn as parse_turn
from uwf_git.format.kinds import parse_workflow as parse_workflow
from uwf_git.format.kinds import remark_in as remark_in
from uwf_git.format.kinds import split_remarks as split_remarks
from uwf_git.format.kinds import status_of as status_of
from uwf_git.format.kinds import step_fields as step_fields
from uwf_git.format.kinds import title_of as title_of
from uwf_git.format.node import Node as Node
from uwf_git.format.node import file_id as file_id
from uwf_git.format.node import from_blob as _node_from_blob
from uwf_git.format.node import hash_of as hash_of
from uwf_git.format.node import node_hash as node_hash
from uwf_git.format.node import parse_json as parse_json
from uwf_git.format.payloads import from_payload as from_payload
from uwf_git.format.payloads import to_payload as to_payload
from uwf_git.format.personas import Persona as Persona
from uwf_git.format.personas import find_persona as find_persona
from uwf_git.format.personas import parse_persona as parse_persona
from uwf_git.format.quick_schema import OBJECT_ID as OBJECT_ID
from uwf_git.format.schema import Schema as Schema
from uwf_git.format.schema import ValuePath as ValuePath
from uwf_git.format.schema import check_schema as check_schema
from uwf_git.format.shape import Field as _SchemaField
from uwf_git.format.shape import Variant as _SchemaVariant
from uwf_git.format.shape import choices as _schema_choices
from uwf_git.format.shape import named as _schema_name
from uwf_git.format.shape import types as _schema_types
from uwf_git.format.shape import variants as _schema_variants
from uwf_git.format.statuses import STATUS as _STATUS_KEY
from uwf_git.format.statuses import SUSPEND as _SUSPEND_STATUS
from uwf_git.format.types import ANSWER as ANSWER
from uwf_git.format.types import BMAD as BMAD
from uwf_git.format.types import BUNDLE as BUNDLE
from uwf_git.format.types import CODE as CODE
from uwf_git.format.types import CREW as CREW
from uwf_git.format.types import CREW_DEFINITION as CREW_DEFINITION
from uwf_git.format.types import DEFINITIONS as DEFINITIONS
from uwf_git.format.types import END as END
from uwf_git.format.types import ENDS as ENDS
from uwf_git.format.types import FAIL as FAIL
from uwf_git.format.types import FORK as FORK
from uwf_git.format.types import JAVASCRIPT as JAVASCRIPT
from uwf_git.format.types import JOIN as JOIN
from uwf_git.format.types import MOST_ROUNDS as MOST_ROUNDS
from uwf_git.format.types import OF_THREADS as OF_THREADS
from uwf_git.format.types import OWN as _OWN_FORM
from uwf_git.format.types import PYTHON as PYTHON
from uwf_git.format.types import QUESTION as QUESTION
from uwf_git.format.types import REMARK as REMARK
from uwf_git.format.types import RESULT as RESULT
from uwf_git.format.types import SESSION as SESSION
from uwf_git.format.types import START as START
from uwf_git.format.types import STEPNODE as STEPNODE
from uwf_git.format.types import TEXT as TEXT
from uwf_git.format.types import USER as USER
from uwf_git.format.types import called as _type_name
from uwf_git.format.types import is_kind as is_kind
from uwf_git.format.types import role_name as role_name
from uwf_git.format.types import versions as _type_versions
from uwf_git.format.types import workflow_type as workflow_type
from uwf_git.format.words import require_known_words as require_known_words
from uwf_git.format.yaml12 import dump as _dump_yaml
from uwf_git.format.yaml12 import load as _load_yaml
from uwf_git.format.yaml12 import read as _read_yaml
from uwf_git.format.yaml12 import scalar as _yaml_scalar
from uwf_git.git.bulk import FULL as _BULK_FULL
from uwf_git.git.bulk import Bulk as _BulkWriter
from uwf_git.git.fsync import ASIDE as _ASIDE_FOLDER
from uwf_git.git.fsync import make_folder as make_folder
from uwf_git.git.fsync import make_folders as make_folders
from uwf_git.git.fsync import share as _share_folder
from uwf_git.git.ignored import ignored_below as ignored_below
from uwf_git.git.objects import BLOB as BLOB
from uwf_git.git.objects import BLOB_MODE as BLOB_MODE
from uwf_git.git.objects import TREE_MODE as TREE_MODE
from uwf_git.git.objects import Commit as Commit
from uwf_git.git.objects import Entry as Entry
from uwf_git.git.objects import Oid as Oid
from uwf_git.git.objects import Person as Person
from uwf_git.git.objects import Stamp as Stamp
from uwf_git.git.objects import id_of as id_of
from uwf_git.git.objects import parse_tag as parse_tag
from uwf_git.git.objects import stands_for_git as stands_for_git
from uwf_git.git.objects import stands_for_modules as stands_for_modules
from uwf_git.git.objects import tag_text as tag_text
from uwf_git.git.program import PATIENCE as _GIT_PATIENCE
from uwf_git.git.program import CallResult as CallResult
from uwf_git.git.program import Git as Git
from uwf_git.git.program import failure as _git_failure
from uwf_git.git.refs import PRIVATE as _PRIVATE_FOLDER
from uwf_git.git.repository import Repository as Repository
from uwf_git.git.signing import Configured as _SigningSettings
from uwf_git.git.signing import sign as sign
from uwf_git.git.signing import ssh_key as ssh_key
from uwf_git.git.signing import style_of as _signing_style
from uwf_git.git.worktree import folders_beside as folders_beside
from uwf_git.sandbox import bubblewrap as bubblewrap
from uwf_git.sandbox import child as _processes
from uwf_git.sandbox import path as _confined_paths
from uwf_git.sandbox import programs as programs
from uwf_git.sandbox import results as _tool_results
from uwf_git.sandbox.descendants import Descendants as Descendants
from uwf_git.sandbox.enclosing_step import require_person as require_person
from uwf_git.sandbox.limits import of_commands as _command_limits
from uwf_git.sandbox.mounts import DOCUMENT as _DOCUMENT_MOUNT
from uwf_git.sandbox.mounts import OUTPUT as _OUTPUT_MOUNT
from uwf_git.sandbox.mounts import PACKAGE as _PACKAGE_MOUNT
from uwf_git.sandbox.mounts import PLACEHOLDERS as _MOUNT_PLACEHOLDERS
from uwf_git.sandbox.mounts import PROJECT as _PROJECT_MOUNT
from uwf_git.sandbox.mounts import STATE as _STATE_MOUNT
from uwf_git.sandbox.mounts import WORKFLOW as _WORKFLOW_MOUNT
from uwf_git.sandbox.mounts import StepFolders as StepFolders
from uwf_git.sandbox.path import Mount as Mount
from uwf_git.sandbox.path import MountedPath as MountedPath
from uwf_git.sandbox.programs import avoid as _avoid_programs
from uwf_git.sandbox.programs import find_program as find_program
from uwf_git.sandbox.quota import Exceeded as _QuotaExceeded
from uwf_git.sandbox.quota import Quota as Quota
from uwf_git.sandbox.repositories import RepositoriesBefore as RepositoriesBefore
from uwf_git.sandbox.results import Outputs as _ToolOutputs
from uwf_git.sandbox.results import ToolFailure as ToolFailure
from uwf_git.sandbox.step_variables import NO_APPROVALS_VARIABLE as NO_APPROVALS_VARIABLE
from uwf_git.sandbox.step_variables import NONCE_VARIABLE as NONCE_VARIABLE
from uwf_git.sandbox.step_variables import WITHHELD as _WITHHELD_NONCE
from uwf_git.sandbox.warm import WarmPool as WarmPool
from uwf_git.sandbox.warm import WarmProcess as WarmProcess
from uwf_git.sandbox.workspace import Change as _FileChange
from uwf_git.sandbox.workspace import Limits as _WorkspaceLimits
from uwf_git.sandbox.workspace import Workspace as Workspace
from uwf_git.sandbox.workspace import open_regular as open_regular
from uwf_git.store import layout as layout
from uwf_git.store.attempts import Attempts as Attempts
from uwf_git.store.attempts import FailedAttempt as FailedAttempt
from uwf_git.store.definitions import addresses as _definition_addresses
from uwf_git.store.definitions import current_cast as current_cast
from uwf_git.store.definitions import packages_with as packages_with
from uwf_git.store.history import Head as Head
from uwf_git.store.history import History as History
from uwf_git.store.history import PastStep as PastStep
from uwf_git.store.history import Position as _ThreadPosition
from uwf_git.store.history import ancestry as ancestry
from uwf_git.store.history import is_call as is_call
from uwf_git.store.history import parted_from as parted_from
from uwf_git.store.history import start_of as start_of
from uwf_git.store.index import CommitRow as CommitRow
from uwf_git.store.index import Overlay as _IndexOverlay
from uwf_git.store.index import commit_row as commit_row
from uwf_git.store.indexing import Store as _IndexedStore
from uwf_git.store.indexing import keeping as _kept_indexed
from uwf_git.store.instance import Instance as Instance
from uwf_git.store.instance import begin_log as begin_log
from uwf_git.store.instance import redactor_at as redactor_at
from uwf_git.store.instance import wanted_log as wanted_log
from uwf_git.store.kept_store import open_here as open_here
from uwf_git.store.kept_store import signature as signature
from uwf_git.store.layout import INCLUDED as INCLUDED
from uwf_git.store.layout import Trailers as Trailers
from uwf_git.store.layout import parse_message as parse_message
from uwf_git.store.location import ROOT_VARIABLES as ROOT_VARIABLES
from uwf_git.store.location import Location as Location
from uwf_git.store.location import checkout_around as checkout_around
from uwf_git.store.location import init as _init_store
from uwf_git.store.location import locate as _locate_store
from uwf_git.store.locks import Locks as _StoreLocks
from uwf_git.store.new_record import NewRecord as NewRecord
from uwf_git.store.node_versions import NodeVersions as NodeVersions
from uwf_git.store.nodes import NodeStore as NodeStore
from uwf_git.store.nodes import UnionSet as UnionSet
from uwf_git.store.pages import report_of as report_of
from uwf_git.store.permission_files import Decision as _PermissionDecision
from uwf_git.store.permission_files import Wish as _PermissionWish
from uwf_git.store.private import PERMISSIONS as _PERMISSIONS_FOLDER
from uwf_git.store.private import QUESTION_VARIABLE as QUESTION_VARIABLE
from uwf_git.store.private import EngineOrder as EngineOrder
from uwf_git.store.private_files import read_private as read_private
from uwf_git.store.private_files import write_private as write_private
from uwf_git.store.remotes import Remote as Remote
from uwf_git.store.removed import expired as _expired_threads
from uwf_git.store.setups import Setup as Setup
from uwf_git.store.setups import Setups as Setups
from uwf_git.store.setups import config_with as config_with
from uwf_git.store.thread_records import ThreadRecord as ThreadRecord
from uwf_git.store.thread_records import ThreadRecords as ThreadRecords
from uwf_git.store.threads import DamagedThread as DamagedThread
from uwf_git.store.threads import Threads as Threads
from uwf_git.store.version_files import VersionFiles as VersionFiles
from uwf_git.store.versions import Offer as _DefinitionOffer
from uwf_git.store.versions import Packages as _PackageSource
from uwf_git.store.versions import PastVersion as PastVersion
from uwf_git.store.versions import Registry as _DefinitionRegistry
from uwf_git.store.versions import Version as _RegisteredVersion
from uwf_git.store.versions import compare as _compare_trees
from uwf_git.store.versions import put_definition as put_definition
from uwf_git.store.versions import version_files as version_files
from uwf_git.store.versions import walk_tree as walk_tree
from uwf_git.store.witness_log import user_state as user_state
from uwf_git.sync.exchange import Exchange as Exchange
from uwf_git.sync.proposals import Proposal as Proposal
from uwf_git.sync.publish import branch_name as branch_name
from uwf_git.sync.pull import pull as _pull_refs
from uwf_git.sync.pull import raise_if_refused as raise_if_refused
from uwf_git.sync.shared_step import DeletedThere as DeletedThere
from uwf_git.sync.shared_step import gather_all as gather_all
from uwf_git.sync.shared_step import share_all as share_all
from uwf_git.sync.tracking import list_refs as list_refs
from uwf_git.sync.tracking import listed_lines as listed_lines
from uwf_git.sync.transfer import transfer as _transfer_refs
from uwf_git.trust import policies as _trust_policies
from uwf_git.trust.judgement import note_signatures as note_signatures
from uwf_git.trust.judgement import unmet_tips as unmet_tips
from uwf_git.trust.own_key import own_key as own_key
from uwf_git.trust.people import identity_of as identity_of
from uwf_git.trust.permission import guard as _guard_by_policy
from uwf_git.trust.policies import current as _current_policy
from uwf_git.trust.policy import SUBJECTS as _RULE_SUBJECTS
from uwf_git.trust.policy import Policy as _TrustPolicy
from uwf_git.trust.policy import Rule as _TrustRule
from uwf_git.trust.policy import parse as _parse_trust_file
from uwf_git.trust.signatures import GOOD as _GOOD_SIGNATURE
from uwf_git.trust.signatures import NONE as _NO_SIGNATURE
from uwf_git.trust.signatures import Signature as Signature
from uwf_git.trust.signatures import signatures as signatures
from uwf_git.verify import objects as _verified_objects
from uwf_git.verify.checkout import open_checkout as open_checkout
from uwf_git.verify.checks import OK as OK
from uwf_git.verify.checks import WARNING as WARNING
from uwf_git.verify.checks import Check as Check
from uwf_git.verify.definition import SECONDS as _CHECK_SECONDS
from uwf_git.verify.definition import check_attributes as check_attributes
from uwf_git.verify.definition import read_all as _read_definitions
from uwf_git.verify.definition import read_version as read_version
from uwf_git.verify.findings import CODES as _FINDING_CODES
from uwf_git.verify.findings import UNCHECKED as UNCHECKED
from uwf_git.verify.findings import Bad as _BadObject
from uwf_git.verify.findings import Report as _CheckReport
from uwf_git.verify.nodes import Nodes as _CheckedNodes
from uwf_git.verify.nodes import check_order as check_order
from uwf_git.verify.nodes import check_page as check_page
from uwf_git.verify.nodes import files_below as files_below
from uwf_git.verify.nodes import rows_of as _node_rows_of
from uwf_git.verify.thread_records import PlacedRecord as PlacedRecord
from uwf_git.verify.thread_records import has_record as has_record
from uwf_git.verify.thread_records import place_of as place_of
from uwf_git.verify.verified import Known as _KnownRecords
from uwf_git.verify.verified import Record as _VerifiedRecord
from uwf_git.verify.versions import Version as _CheckedVersion
from uwf_git.verify.versions import check_version as check_version
from uwf_git.workflow import define as _workflow_define
from uwf_git.workflow.check import check_role_schema as check_role_schema
from uwf_git.workflow.code_workflow import MAX_BYTES as _MAX_CODE_BYTES
from uwf_git.workflow.code_workflow import language_of as language_of
from uwf_git.workflow.code_workflow import name_of as _code_name_of
from uwf_git.workflow.common_mistakes import means_end as means_end
from uwf_git.workflow.common_mistakes import means_start as means_start
from uwf_git.workflow.compile import Compiled as Compiled
from uwf_git.workflow.compile import InvalidWorkflow as InvalidWorkflow
from uwf_git.workflow.compile import compile_source as compile_source
from uwf_git.workflow.compile import foresee as foresee
from uwf_git.workflow.diagram import Drawing as _DiagramDrawing
from uwf_git.workflow.diagram import mermaid as _mermaid_diagram
from uwf_git.workflow.expression import check_expression as check_expression
from uwf_git.workflow.expression import evaluate as _evaluate_expression
from uwf_git.workflow.moderator import AwaitingAnswer as AwaitingAnswer
from uwf_git.workflow.moderator import DecidedByCode as DecidedByCode
from uwf_git.workflow.moderator import Decision as Decision
from uwf_git.workflow.moderator import Next as Next
from uwf_git.workflow.moderator import Replay as Replay
from uwf_git.workflow.moderator import WorkflowEnded as WorkflowEnded
from uwf_git.workflow.moderator import brief as _brief_decision
from uwf_git.workflow.moderator import choose as _choose_role
from uwf_git.workflow.moderator import decide as _decide_turn
from uwf_git.workflow.moderator import follow as _follow_graph
from uwf_git.workflow.moderator import history_value as history_value
from uwf_git.workflow.moderator import leading_to as leading_to
from uwf_git.workflow.rehearsal import Report as _Rehearsal
from uwf_git.workflow.rehearsal import rehearse as rehearse
from uwf_git.workflow.sample_outputs import Hints as _SampleHints
from uwf_git.workflow.sample_outputs import hints_of as hints_of
from uwf_git.workflow.sample_outputs import variants as _sample_variants
from uwf_git.workflow.source import Source as Source
from uwf_git.workflow.source import parse_source as parse_source
from uwf_git.workflow.template import render as _render_template
from uwf_git.workspaces.changes import ChangedFile as ChangedFile
from uwf_git.workspaces.changes import Changes as _CodeChanges
from uwf_git.workspaces.changes import step_code as step_code
from uwf_git.workspaces.changes import thread_code as thread_code
from uwf_git.workspaces.choice import assign as _assign_worktree
from uwf_git.workspaces.choice import begin as _begin_worktree
from uwf_git.workspaces.choice import chosen as _chosen_worktree
from uwf_git.workspaces.choice import share as _share_worktree
from uwf_git.workspaces.clones import clones as _clones_of
from uwf_git.workspaces.exposure import secrets_in as secrets_in
from uwf_git.workspaces.lines import CommitLines as CommitLines
from uwf_git.workspaces.lines import added_lines as added_lines
from uwf_git.workspaces.merging import Pick as _RebasePick
from uwf_git.workspaces.merging import Rebased as Rebased
from uwf_git.workspaces.merging import merging as merging
from uwf_git.workspaces.moved import taken_back as taken_back
from uwf_git.workspaces.notes import Notes as _WorktreeNotes
from uwf_git.workspaces.options import WORKTREE as _WORKTREE_OPTION
from uwf_git.workspaces.options import WorkspaceOption as WorkspaceOption
from uwf_git.workspaces.options import parse_option as _parse_workspace_option
from uwf_git.workspaces.project import Project as Project
from uwf_git.workspaces.removal import tidy as _tidy_worktrees
from uwf_git.workspaces.requirements import REQUIREMENTS as _WORKTREE_REQUIREMENTS
from uwf_git.workspaces.sharing import push_code as push_code
from uwf_git.workspaces.step_workspace import StepWorkspace as StepWorkspace
from uwf_git.workspaces.step_workspace import code_left as code_left
from uwf_git.workspaces.step_workspace import logs_url as logs_url
from uwf_git.workspaces.step_workspace import workspace_of as _workspace_at
from uwf_git.workspaces.trial import LOG_BYTES as LOG_BYTES
from uwf_git.workspaces.trial import checked_out as checked_out
from uwf_git.workspaces.trial import try_command as try_command

STEPS_SHOWN = _STEPS_SHOWN
WantedParts = _WantedParts
STEP_TABS = _STEP_TABS
TURNS_SHOWN = _TURNS_SHOWN
ACTIVE_STATES = _ACTIVE_STATES
AMOUNT_LIMITS = _AMOUNT_LIMITS
ASIDE_FOLDER = _ASIDE_FOLDER
AnswerVerdict = _AnswerVerdict
BUDGET_OPTIONS = _BUDGET_OPTIONS
BULK_FULL = _BULK_FULL
BadObject = _BadObject
BulkWriter = _BulkWriter
CASE_SKIPPED = _CASE_SKIPPED
CENSUS_FAILURES = _CENSUS_FAILURES
CHECK_SECONDS = _CHECK_SECONDS
COMPLETE_CONDITION = _COMPLETE_CONDITION
CONFIG_FILE = _CONFIG_FILE
CONTENT_FIELD = _CONTENT_FIELD
COST_LIMIT = _COST_LIMIT
CallRequest = _CallRequest
CheckReport = _CheckReport
CheckedNodes = _CheckedNodes
CheckedVersion = _CheckedVersion
CodeChanges = _CodeChanges
CodeVerdict = _CodeVerdict
CommandClass = _CommandClass
CommandFailed = _CommandFailed
CommandResult = _CommandResult
DOCUMENT_MOUNT = _DOCUMENT_MOUNT
DefinitionOffer = _DefinitionOffer
DefinitionRegistry = _DefinitionRegistry
DiagramDrawing = _DiagramDrawing
FETCH_TOOL = _FETCH_TOOL
FINDING_CODES = _FINDING_CODES
FORGE_MARK = _FORGE_MARK
FieldReader = _FieldReader
FileChange = _FileChange
ForgeChange = _ForgeChange
ForgeHints = _ForgeHints
GIT_PATIENCE = _GIT_PATIENCE
GOOD_SIGNATURE = _GOOD_SIGNATURE
IndexOverlay = _IndexOverlay
IndexedStore = _IndexedStore
KnownRecords = _KnownRecords
LARGEST_OUTPUT = _LARGEST_OUTPUT
MAX_CODE_BYTES = _MAX_CODE_BYTES
MAX_DOCUMENT_BYTES = _MAX_DOCUMENT_BYTES
MOUNT_PLACEHOLDERS = _MOUNT_PLACEHOLDERS
NO_SIGNATURE = _NO_SIGNATURE
OUTPUT_MOUNT = _OUTPUT_MOUNT
OWN_FORM = _OWN_FORM
OutputTooLarge = _OutputTooLarge
PACKAGE_MOUNT = _PACKAGE_MOUNT
PAYLOAD_TOO_LONG = _PAYLOAD_TOO_LONG
PERMISSIONS_FOLDER = _PERMISSIONS_FOLDER
PRIVATE_FOLDER = _PRIVATE_FOLDER
PROJECT_MOUNT = _PROJECT_MOUNT
PackageSource = _PackageSource
PermissionDecision = _PermissionDecision
PermissionWish = _PermissionWish
ProgressMeter = _ProgressMeter
QuotaExceeded = _QuotaExceeded
RUN_TOOL = _RUN_TOOL
RegisteredVersion = _RegisteredVersion
Rehearsal = _Rehearsal
RebasePick = _RebasePick
RunOptions = _RunOptions
SEEN_LENGTH = _SEEN_LENGTH
SILENCE_LIMIT = _SILENCE_LIMIT
STATE_MOUNT = _STATE_MOUNT
STATUS_FIELD = _STATUS_FIELD
STATUS_KEY = _STATUS_KEY
SUSPEND_STATUS = _SUSPEND_STATUS
SampleHints = _SampleHints
SchemaField = _SchemaField
SchemaVariant = _SchemaVariant
SigningSettings = _SigningSettings
SourceMark = _SourceMark
SpendingRun = _SpendingRun
SpendingTotals = _SpendingTotals
StartNode = _StartNode
StepChanges = _StepChanges
StoreLocks = _StoreLocks
TableColumn = _TableColumn
ThreadFilters = _ThreadFilters
ThreadPosition = _ThreadPosition
ThreadSelection = _ThreadSelection
ThreadStart = _ThreadStart
ThreadSummary = _ThreadSummary
TimeBudgetExceeded = _TimeBudgetExceeded
TokenUsage = _TokenUsage
ToolOutputs = _ToolOutputs
VerifiedRecord = _VerifiedRecord
WITHHELD_NONCE = _WITHHELD_NONCE
WORKFLOW_MOUNT = _WORKFLOW_MOUNT
WORKTREE_OPTION = _WORKTREE_OPTION
WRITING_TOOLS = _WRITING_TOOLS
WorkspaceLimits = _WorkspaceLimits
WorktreeNotes = _WorktreeNotes
agent_environment = _agent_environment
answer_turn = _answer_turn
assign_worktree = _assign_worktree
avoid_programs = _avoid_programs
bar_labels = _bar_labels
begin_thread = _begin_thread
begin_worktree = _begin_worktree
branch_matrix = _branch_matrix
brief_decision = _brief_decision
budget_limits = _budget_limits
call_arrivals = _call_arrivals
call_command = _call_command
choose_role = _choose_role
chosen_worktree = _chosen_worktree
clones_of = _clones_of
closest_names = _closest_names
code_name_of = _code_name_of
code_at_end = _code_at_end
coerce_value = _coerce_value
command_group = _command_group
command_limits = _command_limits
compare_trees = _compare_trees
compiler_of = _compiler_of
current_policy = _current_policy
cut_text = _cut_text
decide_turn = _decide_turn
definition_addresses = _definition_addresses
describe_failure = _describe_failure
describe_schema = _describe_schema
documents = _documents
dump_yaml = _dump_yaml
duration_text = _duration_text
embedded_agent = _embedded_agent
engine_calls = _engine_calls
evaluate_expression = _evaluate_expression
exact_time = _exact_time
expanded_path = _expanded_path
failures_reported = _failures_reported
find_call = _find_call
follow_graph = _follow_graph
fork_thread = _fork_thread
git_failure = _git_failure
guard_by_policy = _guard_by_policy
happened_before = _happened_before
human_turn_of = _human_turn_of
in_dollars = _in_dollars
init_store = _init_store
inbox_groups = _inbox_groups
judge_answer = _judge_answer
is_new_remote = _is_new_remote
judged_answer = _judged_answer
kept_indexed = _kept_indexed
known_agents = _known_agents
kill_thread = _kill_thread
list_threads = _list_threads
load_extension = _load_extension
load_yaml = _load_yaml
locate_remote = _locate_remote
locate_store = _locate_store
mermaid_diagram = _mermaid_diagram
narrowed_options = _narrowed_options
nest_threads = _nest_threads
nested_spending = _nested_spending
node_from_blob = _node_from_blob
node_rows_of = _node_rows_of
normalise_payload = _normalise_payload
numbered_lines = _numbered_lines
overriding_options = _overriding_options
page_addresses = _page_addresses
parent_threads = _parent_threads
parse_budget_option = _parse_budget_option
parse_workspace_option = _parse_workspace_option
past_versions = _past_versions
pause_thread = _pause_thread
permission_line = _permission_line
permission_lines = _permission_lines
permission_value = _permission_value
permission_wish_value = _permission_wish_value
presented_code = _presented_code
prompt_commands = _prompt_commands
pull_refs = _pull_refs
push_threads = _push_threads
read_definitions = _read_definitions
read_yaml = _read_yaml
registered_versions = _registered_versions
related_threads = _related_threads
remark_fate = _remark_fate
remark_on = _remark_on
remove_thread = _remove_thread
author_name = _author_name
node_places = _node_places
node_weight = _node_weight
node_of_end = _node_of_end
run_view = _run_view
attempt_view = _attempt_view
compare_threads = _compare_threads
plain_text = _plain_text
step_view = _step_view
thread_news = _thread_news
thread_rows = _thread_rows
render_template = _render_template
resume_thread = _resume_thread
run_thread = _run_thread
sample_variants = _sample_variants
say_to = _say_to
schema_choices = _schema_choices
schema_name = _schema_name
schema_types = _schema_types
schema_variants = _schema_variants
selected_threads = _selected_threads
settle_thread = _settle_thread
settled_text = _settled_text
share_folder = _share_folder
share_worktree = _share_worktree
signals_deferred = _signals_deferred
signing_style = _signing_style
sound_turns = _sound_turns
spending_account = _spending_account
measure_spending = _measure_spending
spending_unit = _spending_unit
spending_runs = _spending_runs
spending_sums = _spending_sums
spent_in = _spent_in
spent_together = _spent_together
step_exchanged = _step_exchanged
step_once = _step_once
step_thread = _step_thread
summarise_thread = _summarise_thread
terminal_drawing = _terminal_drawing
terminal_undisturbed = _terminal_undisturbed
thread_outlook = _thread_outlook
tidy_worktrees = _tidy_worktrees
time_ago = _time_ago
transfer_refs = _transfer_refs
thread_state_value = _thread_state_value
type_name = _type_name
type_versions = _type_versions
unforged_text = _unforged_text
unified_diff = _unified_diff
SETUP_FOLDER = _SETUP_FOLDER
WORKTREE_REQUIREMENTS = _WORKTREE_REQUIREMENTS
unreadable_document = _unreadable_document
used_up_budget = _used_up_budget
wanted_data = _wanted_data
workflow_define = _workflow_define
workflow_runs = _workflow_runs
saved_views = _saved_views
schemas = _schemas
charts = _charts
ConfigReader = _ConfigReader
RULE_SUBJECTS = _RULE_SUBJECTS
TrustPolicy = _TrustPolicy
TrustRule = _TrustRule
collect_store = _collect_store
tool_results = _tool_results
confined_paths = _confined_paths
step_lines = _step_lines
verified_objects = _verified_objects
processes = _processes
conversations = _conversations
delete_threads_there = _delete_threads_there
expire_thread = _expire_thread
expired_threads = _expired_threads
parse_trust_file = _parse_trust_file
trust_policies = _trust_policies
workspace_at = _workspace_at
yaml_scalar = _yaml_scalar
