"""Addresses of repositories and issues on forges and trackers, by their URLs alone: nothing is fetched to learn a
server's kind."""

import re
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from uwf_git.base.errors import Invalid
from uwf_git.base.text import one_line
from uwf_git.config.forges import Location, locate
from uwf_git.config.settings import Config
from uwf_git.forge.trackers import KEY, TRACKERS, Tracker

GITHUB, GITLAB, FORGEJO, GITEA = KINDS = "github", "gitlab", "forgejo", "gitea"
"""Kinds of forges whose REST API is known."""

_VERSIONS = {GITHUB: "api/v3", GITLAB: "api/v4", FORGEJO: "api/v1", GITEA: "api/v1"}
_PAGE = re.compile(
    r"(?P<repository>(?i:https?)://[^?#]+?)/(?:-/)?(?P<what>issues|work_items|pulls?|merge_requests)/"
    r"(?P<number>[1-9][0-9]{0,17})/?(?:[?#].*)?",
    re.DOTALL,
)
_NUMBER = re.compile(r"#?([1-9][0-9]{0,17})")
_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*")

_LONGEST_URL = 2000


class Forge(NamedTuple):
    """A forge, or a tracker. `kind` is one of KINDS or TRACKERS; `host` has the port, if it is not the scheme's;
    `api` is the address of its REST API, and `pages` that of its pages, "" if it is not known."""

    kind: str
    host: str
    api: str
    pages: str = ""


class ForgeRepository(NamedTuple):
    """A repository. `path` is OWNER/NAME; on GitLab groups are nested, and it may be a project's number. Of a tracker
    it is a project, by the key with which those of its issues begin."""

    forge: Forge
    path: str

    def __str__(self) -> str:
        return f"{self.forge.host}/{self.path}"

    def change_url(self, number: int) -> str:
        """Return the address of a pull request's page."""
        pages = {GITHUB: "pull", GITLAB: "-/merge_requests"}
        return f"{self.forge.pages}/{self.path}/{pages.get(self.forge.kind, 'pulls')}/{number}"


class IssueAddress(NamedTuple):
    """An issue."""

    repository: ForgeRepository
    number: int

    def __str__(self) -> str:
        forge, path = self.repository
        return f"{forge.host}/{self.key}" if forge.kind in TRACKERS else f"{forge.host}/{path}#{self.number}"

    @property
    def key(self) -> str:
        """Its name on the tracker, such as SHOP-42; on a forge its number."""
        forge, path = self.repository
        return f"{path}-{self.number}" if forge.kind in TRACKERS else str(self.number)

    @property
    def url(self) -> str:
        """The address of its page."""
        forge, path = self.repository
        if forge.kind in TRACKERS:
            return f"{forge.pages}/{TRACKERS[forge.kind].page.format(key=self.key)}"
        return f"{forge.pages}/{path}/{'-/' if forge.kind == GITLAB else ''}issues/{self.number}"


def parse_repository(url: str, config: Config) -> ForgeRepository:
    """Return the repository of a remote's URL, or of its page. Raises Invalid, with the line of config.yaml that names
    the forge of an unknown host."""
    location = locate(url, config.forges)
    if location is None:
        shown = _shown(url)
        raise Invalid(f"the remote {shown} is not on a forge", "see: git remote -v")
    return _repository(location, config)


def parse_issue(text: str, config: Config, remote: str | None = None) -> IssueAddress:
    """Return the issue of a page's URL, of a number such as `#42` in the repository of a remote's URL, or of a key such
    as `SHOP-42` on the only tracker of config.yaml. Raises Invalid, also for pull requests."""
    shown = _shown(text)
    if match := KEY.fullmatch(text):
        return _keyed(match, _only_tracker(shown, config))
    if (address := _on_tracker(text, config)) is not None:
        return address
    if match := _NUMBER.fullmatch(text):
        if remote is None:
            raise Invalid(f"issue {shown} is of no known project", "give the URL of the issue's page")
        return IssueAddress(parse_repository(remote, config), int(match[1]))
    match = _PAGE.fullmatch(text)
    location = locate(match["repository"], config.forges) if match else None
    if match is None or location is None:
        raise Invalid(
            f"{shown} is not an issue",
            "give the URL of its page, or its number in the project's repository",
        )
    repository = _repository(location, config)
    if match["what"] not in (("issues", "work_items") if repository.forge.kind == GITLAB else ("issues",)):
        raise Invalid(f"{shown} is a page of a change, not of an issue", "give the URL of an issue's page")
    return IssueAddress(repository, int(match["number"]))


def is_repository_path(path: str) -> bool:
    """Return whether a path may be a repository's in an API's address."""
    return _NAME.fullmatch(path) is not None and not {".", ".."} & {*path.split("/")}


def _shown(url: str) -> str:
    """Return a URL on one line, without a login."""
    return one_line(re.sub("//[^/]*@", "//", url), 120)


def _repository(location: Location, config: Config) -> ForgeRepository:
    host = location.host
    if not location.kind:
        raise Invalid(
            f"the kind of forge at {host} is not known",
            f"name its kind, one of {', '.join(KINDS)}: uwf config set forges.{host} gitea",
        )
    if location.kind not in KINDS:
        raise Invalid(
            f"{host}: issues and requests of {location.kind} are not read", "known: " + ", ".join(KINDS)
        )
    server, path = location.server, location.path
    api = config.forge_apis.get(host) or config.forge_apis.get(_bare(host))
    if api is not None:
        # A server below a folder of its host has its API there too.
        folder = urlsplit(api).path.strip("/").removesuffix(_VERSIONS[location.kind]).strip("/")
        if folder:
            server, path = f"{server}/{folder}", path.removeprefix(f"{folder}/")
    elif location.kind in (FORGEJO, GITEA) and path.count("/") > 1:
        folder, *owned = path.rsplit("/", 2)
        server, path = f"{server}/{folder}", "/".join(owned)
    least, most = 2, 20 if location.kind == GITLAB else 2
    if not is_repository_path(path) or not least <= len(path.split("/")) <= most:
        raise Invalid(f"{host}/{one_line(path, 80)} is not a repository", "its path is OWNER/NAME")
    forge = Forge(location.kind, host, api or _api(location.kind, server, host), server)
    return ForgeRepository(forge, path)


def _keyed(match: re.Match[str], tracker: Forge) -> IssueAddress:
    return IssueAddress(ForgeRepository(tracker, match["project"].upper()), int(match["number"]))


def _only_tracker(shown: str, config: Config) -> Forge:
    if len(config.trackers) != 1:
        named = f"several: {', '.join(config.trackers)}" if config.trackers else "none"
        hint = "" if config.trackers else ", or name the tracker: uwf config set trackers.HOST jira"
        raise Invalid(
            f"{shown} is an issue of a tracker, of which config.yaml names {named}",
            f"give the URL of its page{hint}",
        )
    ((host, kind),) = config.trackers.items()
    return _tracker(TRACKERS[kind], host, f"https://{host}", config)


def _on_tracker(url: str, config: Config) -> IssueAddress | None:
    """Return the issue of a URL that has the form of a tracker's page, None for other URLs. Raises Invalid if the
    host has no such tracker, by config.yaml or by its name."""
    unknown = None
    if len(url) > _LONGEST_URL:
        return None
    for tracker in TRACKERS.values():
        for match in filter(None, (page.fullmatch(url) for page in tracker.pages)):
            location = locate(f"{match['server']}/", {})
            if location is None:
                continue
            host = location.host
            named = config.trackers.get(host) or config.trackers.get(_bare(host))
            if tracker.kind == named or (not named and tracker.has(_bare(host))):
                folder = "" if _bare(host).endswith(f".{tracker.domain}") else location.path
                server = f"{location.server}/{folder}".rstrip("/")
                return _keyed(match, _tracker(tracker, host, server, config))
            unknown = Invalid(
                f"the kind of tracker at {host} is not known",
                f"name it: uwf config set trackers.{host} {tracker.kind}",
            )
    if unknown is not None:
        raise unknown
    return None


def _tracker(tracker: Tracker, host: str, server: str, config: Config) -> Forge:
    """Return a tracker. An API at its own host says at which folder its pages are, too."""
    api, end = config.tracker_apis.get(host) or config.tracker_apis.get(_bare(host)) or "", f"/{tracker.api}"
    if urlsplit(api).netloc.lower() == host and api.endswith(end):
        server = api.removesuffix(end)
    return Forge(tracker.kind, host, api or urljoin(f"{server}/", tracker.api), server)


def _bare(host: str) -> str:
    """Return a host without its port."""
    return re.sub(":[0-9]+$", "", host)


def _api(kind: str, server: str, host: str) -> str:
    if kind == GITHUB and (host == "github.com" or host.endswith(".ghe.com")):
        return f"https://api.{host}"
    return f"{server}/{_VERSIONS[kind]}"
