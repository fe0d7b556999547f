"""The library for extensions: all that they import of uwf-git, besides `uwf_git` and `uwf_git.kit`.

`SECTIONS` is the page of its names, and docs/reference/plugin.md is made of it. Each name has the place that it is
loaded from when it is used, and a line. The sections on commands and pages name the command's toolkit: they are for
extensions that add any, and load nothing before. No module of the core or the command imports this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from uwf_cli import terminal as terminal
    from uwf_cli.call import Failed as _CommandFailed
    from uwf_cli.call import Result as _CommandResult
    from uwf_cli.call import call as _call_command
    from uwf_cli.call import calling as calling
    from uwf_cli.call_process import LARGEST as _LARGEST_OUTPUT
    from uwf_cli.call_process import TooLarge as _OutputTooLarge
    from uwf_cli.call_process import call_in_process as call_in_process
    from uwf_cli.command import CommandEntry as CommandEntry
    from uwf_cli.command import Group as Group
    from uwf_cli.command import command as command
    from uwf_cli.completers import complete_thread as complete_thread
    from uwf_cli.exchange import find_head as find_head
    from uwf_cli.exchange import find_thread as find_thread
    from uwf_cli.failures import Failures as Failures
    from uwf_cli.files import write_text as write_text
    from uwf_cli.files import write_whole as write_whole
    from uwf_cli.invocation import Invocation as Invocation
    from uwf_cli.invocation import itself as itself
    from uwf_cli.options import THREAD as THREAD
    from uwf_cli.output import as_json as as_json
    from uwf_cli.output import as_yaml as as_yaml
    from uwf_cli.page.document import document as document
    from uwf_cli.page.markup import bounded as _bounded_html
    from uwf_cli.page.markup import markdown as _markdown_html
    from uwf_cli.page.markup import room_for_markdown as room_for_markdown
    from uwf_cli.page.markup import table as _html_table
    from uwf_cli.page.markup import tag as tag
    from uwf_cli.page.markup import text as _html_text
    from uwf_cli.views import Listing as Listing
    from uwf_cli.views import Record as Record
    from uwf_cli.views import Table as Table

    from uwf_git.api.check import UNCHECKED as UNCHECKED
    from uwf_git.api.check import Report as Report
    from uwf_git.api.check import check as check
    from uwf_git.api.check import check_tree as check_tree
    from uwf_git.api.check import with_signatures as with_signatures
    from uwf_git.api.listing import ACTIVE as _ACTIVE_STATES
    from uwf_git.api.preflight import require_ready_thread as require_ready_thread
    from uwf_git.api.published_requirements import unmet_requirements as unmet_requirements
    from uwf_git.api.transcript import Transcript as Transcript
    from uwf_git.api.transcript import steps_of as steps_of
    from uwf_git.api.workflows import FOLDER as FOLDER
    from uwf_git.api.workflows import SUFFIXES as SUFFIXES
    from uwf_git.base.errors import Declined as Declined
    from uwf_git.base.errors import HeadMoved as HeadMoved
    from uwf_git.base.errors import Invalid as Invalid
    from uwf_git.base.errors import NotFound as NotFound
    from uwf_git.base.errors import NothingToVerify as NothingToVerify
    from uwf_git.base.errors import RemoteFailed as RemoteFailed
    from uwf_git.base.errors import RequirementUnmet as RequirementUnmet
    from uwf_git.base.errors import Rewritten as Rewritten
    from uwf_git.base.errors import SigningFailed as SigningFailed
    from uwf_git.base.errors import StoreDamaged as StoreDamaged
    from uwf_git.base.errors import TimedOut as TimedOut
    from uwf_git.base.errors import Undecided as Undecided
    from uwf_git.base.errors import Usage as Usage
    from uwf_git.base.errors import UwfError as UwfError
    from uwf_git.base.errors import Worse as Worse
    from uwf_git.base.errors import failure_of as failure_of
    from uwf_git.base.extensions import AgentProgram as AgentProgram
    from uwf_git.base.extensions import Command as Command
    from uwf_git.base.extensions import Dispatcher as Dispatcher
    from uwf_git.base.extensions import Export as Export
    from uwf_git.base.extensions import Extension as Extension
    from uwf_git.base.extensions import Pages as Pages
    from uwf_git.base.extensions import RefKind as RefKind
    from uwf_git.base.extensions import agent_programs as agent_programs
    from uwf_git.base.extras import install_hint as install_hint
    from uwf_git.base.junit import ERROR as ERROR
    from uwf_git.base.junit import FAILED as FAILED
    from uwf_git.base.junit import CaseOutcome as CaseOutcome
    from uwf_git.base.junit import junit as junit
    from uwf_git.base.markdown import code as _markdown_code
    from uwf_git.base.markdown import inline as _inline_markdown
    from uwf_git.base.text import counted as counted
    from uwf_git.base.text import fenced as fenced
    from uwf_git.base.text import harmless as harmless
    from uwf_git.base.text import iso as iso
    from uwf_git.base.text import nearest as nearest
    from uwf_git.base.text import one_line as one_line
    from uwf_git.base.text import printable as printable
    from uwf_git.base.text import shortened as shortened
    from uwf_git.base.thread_states import WORDS as _STATE_WORDS
    from uwf_git.base.thread_states import ThreadState as ThreadState
    from uwf_git.base.thread_states import colour_of as colour_of
    from uwf_git.base.thread_states import words as _state_words
    from uwf_git.base.timelimit import TimeExceeded as TimeExceeded
    from uwf_git.base.timelimit import time_limit as time_limit
    from uwf_git.base.version import VERSION as VERSION
    from uwf_git.engine.forks import branches_of_step as branches_of_step
    from uwf_git.engine.past_prompt import prompt_of_step as prompt_of_step
    from uwf_git.engine.persons_steps import persons_steps as persons_steps
    from uwf_git.engine.spending import DEEPEST as DEEPEST
    from uwf_git.engine.spending import Tokens as Tokens
    from uwf_git.engine.spending import extracting_model as extracting_model
    from uwf_git.engine.spending import tokens_in as tokens_in
    from uwf_git.engine.spending import tokens_of_step as tokens_of_step
    from uwf_git.format.amounts import parse_duration as parse_duration
    from uwf_git.format.ids import Hash as Hash
    from uwf_git.format.ids import ThreadId as ThreadId
    from uwf_git.format.kinds import EXTRACT as EXTRACT
    from uwf_git.format.kinds import HUMAN as HUMAN
    from uwf_git.format.kinds import REHEARSE as REHEARSE
    from uwf_git.format.kinds import Detail as Detail
    from uwf_git.format.kinds import Revision as Revision
    from uwf_git.format.kinds import TurnRecord as TurnRecord
    from uwf_git.format.kinds import Workflow as Workflow
    from uwf_git.format.kinds import parse_detail as parse_detail
    from uwf_git.format.kinds import parse_step as parse_step
    from uwf_git.format.kinds import remark_in as remark_in
    from uwf_git.format.kinds import title_of as title_of
    from uwf_git.format.node import from_blob as _node_from_blob
    from uwf_git.format.types import FORK as FORK
    from uwf_git.format.types import USER as USER
    from uwf_git.format.types import is_kind as is_kind
    from uwf_git.format.types import role_name as role_name
    from uwf_git.git.objects import Commit as Commit
    from uwf_git.git.objects import Entry as Entry
    from uwf_git.git.objects import Oid as Oid
    from uwf_git.git.objects import parse_tag as parse_tag
    from uwf_git.git.program import CallResult as CallResult
    from uwf_git.git.program import Git as Git
    from uwf_git.git.repository import Repository as Repository
    from uwf_git.git.signing import Configured as _SigningSettings
    from uwf_git.git.signing import sign as sign
    from uwf_git.git.signing import ssh_key as ssh_key
    from uwf_git.git.signing import style_of as _signing_style
    from uwf_git.sandbox.child import lines as _read_lines
    from uwf_git.sandbox.enclosing_step import NO_APPROVALS_VARIABLE as NO_APPROVALS_VARIABLE
    from uwf_git.store.history import Head as Head
    from uwf_git.store.history import History as History
    from uwf_git.store.history import ancestry as ancestry
    from uwf_git.store.index import CommitRow as CommitRow
    from uwf_git.store.instance import Instance as Instance
    from uwf_git.store.layout import INCLUDED as INCLUDED
    from uwf_git.store.layout import Trailers as Trailers
    from uwf_git.store.layout import parse_message as parse_message
    from uwf_git.store.location import ROOT_VARIABLES as ROOT_VARIABLES
    from uwf_git.store.location import Location as Location
    from uwf_git.store.node_versions import NodeVersions as NodeVersions
    from uwf_git.sync.publish import branch_name as branch_name
    from uwf_git.trust.people import identity_of as identity_of
    from uwf_git.trust.policies import current as _current_policy
    from uwf_git.trust.signatures import GOOD as _GOOD_SIGNATURE
    from uwf_git.trust.signatures import NONE as _NO_SIGNATURE
    from uwf_git.trust.signatures import Signature as Signature
    from uwf_git.trust.signatures import signatures as signatures
    from uwf_git.verify.checkout import open_checkout as open_checkout
    from uwf_git.verify.checks import OK as OK
    from uwf_git.verify.checks import WARNING as WARNING
    from uwf_git.verify.checks import Check as Check
    from uwf_git.verify.findings import CODES as _FINDING_CODES
    from uwf_git.workflow.compile import Compiled as Compiled
    from uwf_git.workflow.compile import InvalidWorkflow as InvalidWorkflow
    from uwf_git.workflow.compile import compile_source as compile_source
    from uwf_git.workflow.compile import foresee as foresee
    from uwf_git.workflow.rehearsal import Report as _Rehearsal
    from uwf_git.workflow.rehearsal import rehearse as rehearse
    from uwf_git.workflow.source import Source as Source
    from uwf_git.workflow.source import parse_source as parse_source
    from uwf_git.workspaces.lines import CommitLines as CommitLines
    from uwf_git.workspaces.lines import added_lines as added_lines
    from uwf_git.workspaces.step_workspace import logs_url as logs_url

    ACTIVE_STATES = _ACTIVE_STATES
    CommandFailed = _CommandFailed
    CommandResult = _CommandResult
    FINDING_CODES = _FINDING_CODES
    GOOD_SIGNATURE = _GOOD_SIGNATURE
    LARGEST_OUTPUT = _LARGEST_OUTPUT
    NO_SIGNATURE = _NO_SIGNATURE
    OutputTooLarge = _OutputTooLarge
    Rehearsal = _Rehearsal
    STATE_WORDS = _STATE_WORDS
    SigningSettings = _SigningSettings
    bounded_html = _bounded_html
    call_command = _call_command
    current_policy = _current_policy
    html_table = _html_table
    html_text = _html_text
    inline_markdown = _inline_markdown
    markdown_code = _markdown_code
    markdown_html = _markdown_html
    node_from_blob = _node_from_blob
    read_lines = _read_lines
    signing_style = _signing_style
    state_words = _state_words


SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "The row of an extension": {
        "AgentProgram": ("uwf_git.base.extensions", "An agent and its command."),
        "Command": ("uwf_git.base.extensions", "A command or group of commands."),
        "Dispatcher": ("uwf_git.base.extensions", "A way to step many threads, chosen by an option."),
        "Export": ("uwf_git.base.extensions", "A form of `uwf export`."),
        "Extension": ("uwf_git.base.extensions", "What an extension contributes: its `EXTENSION`."),
        "Pages": ("uwf_git.base.extensions", "Pages in `uwf web`."),
        "RefKind": ("uwf_git.base.extensions", "A kind of ref below `refs/uwf/`."),
        "agent_programs": ("uwf_git.base.extensions", "The agents that ship."),
        "install_hint": ("uwf_git.base.extras", "The hint for a package that an extra installs."),
    },
    "Values of the format": {
        "Hash": ("uwf_git.format.ids", "The hash of a node."),
        "ThreadId": ("uwf_git.format.ids", "The id of a thread."),
        "Workflow": ("uwf_git.format.kinds", "A workflow: roles, conditions and graph."),
        "Detail": ("uwf_git.format.kinds", "How a step's output came about."),
        "TurnRecord": ("uwf_git.format.kinds", "A turn of an agent: text, tool, tokens."),
        "Revision": ("uwf_git.format.kinds", "The commit of code that a step left."),
        "EXTRACT": ("uwf_git.format.kinds", "The tool of turns that read an output out of an answer."),
        "FORK": ("uwf_git.format.types", "The role of a fork's step."),
        "HUMAN": ("uwf_git.format.kinds", "The agent of steps that people make."),
        "REHEARSE": ("uwf_git.format.kinds", "The agent that makes outputs up."),
        "USER": ("uwf_git.format.types", "The role of people's answers."),
        "is_kind": ("uwf_git.format.types", 'Whether a type is of a kind such as "step".'),
        "node_from_blob": ("uwf_git.format.node:from_blob", "Parse the file of a node."),
        "parse_detail": ("uwf_git.format.kinds", "Parse the payload of a Detail."),
        "parse_step": ("uwf_git.format.kinds", "Parse the payload of a StepNode."),
        "remark_in": ("uwf_git.format.kinds", "The remark that an output is, else None."),
        "role_name": ("uwf_git.format.types", "A role's name for people."),
        "title_of": ("uwf_git.format.kinds", "The first line of a text."),
    },
    "A store and its threads": {
        "Instance": ("uwf_git.store.instance", "An open store: its nodes, threads, registry, attempts."),
        "Location": ("uwf_git.store.location", "The storage root and the repository of a store."),
        "ROOT_VARIABLES": ("uwf_git.store.location", "Variables of the environment that name a root."),
        "Head": ("uwf_git.store.history", "The end of a thread: its last commit and node."),
        "History": ("uwf_git.store.history", "A thread's start and steps, with outputs."),
        "CommitRow": ("uwf_git.store.index", "A commit as the index has it."),
        "ancestry": ("uwf_git.store.history", "The records behind a commit, newest first."),
        "branches_of_step": ("uwf_git.engine.forks", "The branches of a fork's step."),
        "persons_steps": ("uwf_git.engine.persons_steps", "The steps that people made or approved."),
        "Transcript": ("uwf_git.api.transcript", "A thread as text."),
        "steps_of": ("uwf_git.api.transcript", "The steps of a thread as JSON."),
        "NodeVersions": ("uwf_git.store.node_versions", "Versions of one node by name, such as schedules."),
    },
    "States of threads": {
        "STATE_WORDS": ("uwf_git.base.thread_states:WORDS", "The words of all states."),
        "ThreadState": (
            "uwf_git.base.thread_states",
            "A thread's state: word, label, colour, whether it is done.",
        ),
        "colour_of": ("uwf_git.base.thread_states", "The colour of a state's word."),
        "state_words": ("uwf_git.base.thread_states:words", "States as words."),
        "ACTIVE_STATES": ("uwf_git.api.listing:ACTIVE", "The states of threads that have not ended."),
    },
    "Tokens": {
        "DEEPEST": ("uwf_git.engine.spending", "How deep sub-workflows are counted."),
        "Tokens": ("uwf_git.engine.spending", "Tokens of a model: input, output, cached."),
        "extracting_model": ("uwf_git.engine.spending", "The model of an extraction's turn."),
        "tokens_in": ("uwf_git.engine.spending", "The tokens of a turn's usage."),
        "tokens_of_step": ("uwf_git.engine.spending", "The tokens of a step."),
    },
    "One step": {
        "require_ready_thread": ("uwf_git.api.preflight", "Raise if a thread's next step lacks an agent."),
        "prompt_of_step": ("uwf_git.engine.past_prompt", "Build the prompt of a past step again."),
        "NO_APPROVALS_VARIABLE": (
            "uwf_git.sandbox.enclosing_step",
            "Keeps calls from approving for the user.",
        ),
    },
    "Workflows and their files": {
        "FOLDER": ("uwf_git.api.workflows", "The folder of a project's workflows."),
        "SUFFIXES": ("uwf_git.api.workflows", "The suffixes of workflow files."),
        "INCLUDED": ("uwf_git.store.layout", "The folder of included files in a version's tree."),
        "Compiled": ("uwf_git.workflow.compile", "A compiled workflow with its schemas and source."),
        "InvalidWorkflow": ("uwf_git.workflow.compile", "A workflow with errors: its findings."),
        "Rehearsal": ("uwf_git.workflow.rehearsal:Report", "The edges and roles that a rehearsal reached."),
        "Source": ("uwf_git.workflow.source", "A workflow's file with its positions and includes."),
        "compile_source": ("uwf_git.workflow.compile", "Compile a source. Raises InvalidWorkflow."),
        "foresee": ("uwf_git.workflow.compile", "Findings about a compiled workflow."),
        "parse_source": ("uwf_git.workflow.source", "Parse a workflow's file."),
        "rehearse": ("uwf_git.workflow.rehearsal", "Walk a workflow's graph with sample outputs."),
    },
    "Checks and signatures": {
        "FINDING_CODES": ("uwf_git.verify.findings:CODES", "The codes of findings with their meaning."),
        "NO_SIGNATURE": ("uwf_git.trust.signatures:NONE", "The state of what isn't signed."),
        "GOOD_SIGNATURE": ("uwf_git.trust.signatures:GOOD", "The state of a good signature."),
        "Report": ("uwf_git.api.check", "A verification's result."),
        "Signature": ("uwf_git.trust.signatures", "Who signed, and whether that is good."),
        "SigningSettings": ("uwf_git.git.signing:Configured", "A reader of git's configuration for signing."),
        "UNCHECKED": ("uwf_git.api.check", "The code of what was not checked."),
        "check": ("uwf_git.api.check", "Verify a store or some threads."),
        "check_tree": ("uwf_git.api.check", "Verify a published branch."),
        "current_policy": ("uwf_git.trust.policies:current", "The trust policy in force."),
        "identity_of": ("uwf_git.trust.people", "A committer's name and email."),
        "sign": ("uwf_git.git.signing", "Sign bytes with the key that signs commits."),
        "signatures": ("uwf_git.trust.signatures", "Judge the signatures of objects."),
        "signing_style": ("uwf_git.git.signing:style_of", "Whether ssh, openpgp or x509 signs."),
        "ssh_key": ("uwf_git.git.signing", "The SSH key that signs commits."),
        "unmet_requirements": (
            "uwf_git.api.published_requirements",
            "Hold a published branch to the trust policy.",
        ),
        "with_signatures": ("uwf_git.api.check", "A report with the signatures of its records."),
        "Check": ("uwf_git.verify.checks", "A line of `uwf doctor`."),
        "OK": ("uwf_git.verify.checks", "The state of a check that passed."),
        "WARNING": ("uwf_git.verify.checks", "The state of a check that warns."),
    },
    "Git": {
        "CallResult": ("uwf_git.git.program", "What a call of git printed."),
        "Commit": ("uwf_git.git.objects", "A commit: tree, parents, people, message."),
        "Entry": ("uwf_git.git.objects", "An entry of a tree."),
        "Git": ("uwf_git.git.program", "The git program, on one repository."),
        "Oid": ("uwf_git.git.objects", "The id of an object."),
        "Repository": ("uwf_git.git.repository", "A repository: objects and refs."),
        "Trailers": ("uwf_git.store.layout", "The trailers of a record's commit."),
        "branch_name": ("uwf_git.sync.publish", "The published branch of a ref."),
        "open_checkout": ("uwf_git.verify.checkout", "Open the checkout around a folder."),
        "parse_message": ("uwf_git.store.layout", "The trailers of a commit's message."),
        "parse_tag": ("uwf_git.git.objects", "Parse a tag."),
    },
    "Code of threads": {
        "CommitLines": ("uwf_git.workspaces.lines", "The lines that a commit added."),
        "added_lines": ("uwf_git.workspaces.lines", "The lines that a thread's commits added."),
        "logs_url": ("uwf_git.workspaces.step_workspace", "The address of a thread's log on its forge."),
    },
    "Processes and limits": {
        "TimeExceeded": ("uwf_git.base.timelimit", "A limit of time is used up."),
        "read_lines": ("uwf_git.sandbox.child:lines", "Lines of a stream as they come."),
        "time_limit": ("uwf_git.base.timelimit", "Limit the time of what is within."),
    },
    "Errors": {
        "Declined": ("uwf_git.base.errors", "The user said no."),
        "HeadMoved": ("uwf_git.base.errors", "Another process moved the head."),
        "Invalid": ("uwf_git.base.errors", "A value that breaks its schema or rules."),
        "NotFound": ("uwf_git.base.errors", "There is no such thing."),
        "NothingToVerify": ("uwf_git.base.errors", "There is nothing to verify."),
        "RemoteFailed": ("uwf_git.base.errors", "A remote refused, or was not reached."),
        "RequirementUnmet": ("uwf_git.base.errors", "A requirement of the trust policy isn't met."),
        "Rewritten": ("uwf_git.base.errors", "A history was rewritten."),
        "SigningFailed": ("uwf_git.base.errors", "Something could not be signed."),
        "StoreDamaged": ("uwf_git.base.errors", "The store is damaged."),
        "TimedOut": ("uwf_git.base.errors", "A time limit passed."),
        "Undecided": ("uwf_git.base.errors", "Something was not checked to the end."),
        "Usage": ("uwf_git.base.errors", "A wrong call."),
        "UwfError": ("uwf_git.base.errors", "The base of all errors: message, hint, exit status."),
        "Worse": ("uwf_git.base.errors", "A version is worse than its baseline."),
        "failure_of": ("uwf_git.base.errors", "An error's exit status and JSON."),
    },
    "Text": {
        "CaseOutcome": ("uwf_git.base.junit", "A case of a JUnit report."),
        "ERROR": ("uwf_git.base.junit", "The outcome of a case that broke."),
        "FAILED": ("uwf_git.base.junit", "The outcome of a case that failed."),
        "VERSION": ("uwf_git.base.version", "The version of uwf."),
        "counted": ("uwf_git.base.text", '"1 step", "2 steps".'),
        "fenced": ("uwf_git.base.text", "A text in a fence of Markdown."),
        "iso": ("uwf_git.base.text", "A time in ISO 8601."),
        "junit": ("uwf_git.base.junit", "A report in JUnit's XML."),
        "nearest": ("uwf_git.base.text", "The name that a misspelt one is closest to."),
        "one_line": ("uwf_git.base.text", "A text on one line, of at most N characters."),
        "printable": ("uwf_git.base.text", "A text without control characters."),
        "shortened": ("uwf_git.base.text", "A text of at most N characters."),
        "harmless": ("uwf_git.base.text", "A text with its control characters written out."),
        "inline_markdown": ("uwf_git.base.markdown:inline", "A text as Markdown within a line."),
        "markdown_code": ("uwf_git.base.markdown:code", "A text as code in Markdown."),
        "parse_duration": ("uwf_git.format.amounts", 'Seconds of "90s" or "1h30m".'),
    },
    "Commands": {
        "CommandEntry": ("uwf_cli.command", "A member of a group: its place and its line of help."),
        "CommandFailed": ("uwf_cli.call:Failed", "The failure of a call."),
        "CommandResult": ("uwf_cli.call:Result", "The value and warnings of a call."),
        "Group": ("uwf_cli.command", "A group of commands."),
        "Invocation": ("uwf_cli.invocation", "One call: its store, its options, its output."),
        "Listing": ("uwf_cli.views", "A view of a list: a line for each object."),
        "LARGEST_OUTPUT": ("uwf_cli.call_process:LARGEST", "The most that a call in a process may print."),
        "Record": ("uwf_cli.views", "A view of an object: its fields, one below the other."),
        "Table": ("uwf_cli.views", "A view of a list: a row for each object."),
        "THREAD": ("uwf_cli.options", "The argument ID, with completion."),
        "OutputTooLarge": ("uwf_cli.call_process:TooLarge", "A call printed more than that."),
        "as_json": ("uwf_cli.output", "A value as JSON."),
        "as_yaml": ("uwf_cli.output", "A value as YAML."),
        "call_command": ("uwf_cli.call:call", "Call a command in this process."),
        "call_in_process": ("uwf_cli.call_process", "Call a command in a process of its own."),
        "calling": ("uwf_cli.call", "The invocation of calls in this process."),
        "command": ("uwf_cli.command", "Make a command of a function; with examples for its help."),
        "complete_thread": ("uwf_cli.completers", "Complete a thread's id."),
        "find_head": ("uwf_cli.exchange", "The head of a thread by a part of its id."),
        "find_thread": ("uwf_cli.exchange", "A thread by a part of its id."),
        "itself": ("uwf_cli.invocation", "The command line of `uwf` itself."),
        "terminal": ("uwf_cli", "Tables, styles and widths of a terminal."),
        "write_text": ("uwf_cli.files", "Write a text to a file."),
        "write_whole": ("uwf_cli.files", "Write a file whole or not at all."),
        "Failures": ("uwf_cli.failures", "Errors of a command about many things: the rest goes on."),
    },
    "Pages": {
        "document": ("uwf_cli.page.document", "A whole page."),
        "bounded_html": ("uwf_cli.page.markup:bounded", "A value as HTML, of at most N characters."),
        "html_table": ("uwf_cli.page.markup:table", "A table of cells in HTML."),
        "html_text": ("uwf_cli.page.markup:text", "A text for a page, escaped."),
        "markdown_html": ("uwf_cli.page.markup:markdown", "Markdown as HTML, without scripts."),
        "room_for_markdown": ("uwf_cli.page.markup", "Limit the Markdown that a page renders."),
        "tag": ("uwf_cli.page.markup", "An element."),
    },
}
"""The names by section: the place of each, as `module` or `module:attribute`, and its line."""

_PLACES = {name: place for names in SECTIONS.values() for name, (place, _) in names.items()}


if not TYPE_CHECKING:  # which would accept any name

    def __getattr__(name: str) -> Any:
        place = _PLACES.get(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = place.partition(":")
        loaded = import_module(module)
        if not attribute and not hasattr(loaded, name):  # a module of a package
            return import_module(f"{module}.{name}")
        return getattr(loaded, attribute or name)


def __dir__() -> list[str]:
    return sorted(_PLACES)
