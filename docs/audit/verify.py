"""Compare an audit report or an attestation of uwf with a git clone, without uwf: Python, git and ssh-keygen.

    python3 verify.py FILE CLONE [--signers FILE] [--policy COMMIT] [--key PEM] [--code CLONE] [--accept-unproved]

--signers: the keys that may sign, as ssh-keygen(1) describes; OpenPGP keys are gpg's. --policy: a version of the trust
policy that you know from elsewhere, on which that of CLONE must stand. --key: an attestation's, for openssl.
Exit 0: each word of FILE is in the thread's commits, or signed, and each decision follows from its approvals. 1:
something differs, or is not proved. Not looked at: whether the workflow called for each step, what joins say of their
branches, and what a diff showed. A decision that rests on it is not proved.
"""
import argparse, base64, hashlib, json, pathlib, re, struct, subprocess, sys, tempfile, time
FORMAT, EMPTY = "https://uwf-git.invalid/schemas/audit-report/v1", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
NODE = r"^:\S+ \S+ \S+ (\S+) \S\t(?:workflow|start|steps/(?:[0-9]+xx/)?[^/\n]+)/nodes/([0-9A-Z]{13})\.json$"
ID, wrong, unproved = re.compile("[0-9a-f]{40,64}"), [], []
called = lambda *words, data=None: subprocess.run(words, input=data, capture_output=True)
iso = lambda seconds: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
sha256 = lambda text: None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

def git(*words, clone=None):
    signers = ("-c", f"gpg.ssh.allowedSignersFile={pathlib.Path(args.signers).absolute()}") if args.signers else ()
    done = called("git", "--no-replace-objects", "-C", clone or args.clone, *signers, *words)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
def read(oid, kind):
    done = called("git", "--no-replace-objects", "-C", args.clone, "cat-file", kind, oid)
    found = hashlib.sha1(b"%s %d\0%s" % (kind.encode(), len(done.stdout), done.stdout)).hexdigest()
    return done.stdout.decode("utf-8", "replace") if found == oid else sys.exit(f"{kind} {oid} is gone, or damaged")

def made_by(oid, kind):  # of a commit or tag the message, the parents, the time, and who made it
    head, _, text = read(oid, kind).partition("\n\n")
    name, email, at = re.search(r"^(?:committer|tagger) (.*) <(.*)> (\d+) \S+$", head, re.M).groups()
    mark = signature(oid, kind) if "\ngpgsig " in head or "\n-----BEGIN " in "\n" + text else None
    made = {"by": {"name": name, "email": email}, "time": iso(int(at)), "signature": mark}
    return text, re.findall(r"^parent (\S+)$", head, re.M), int(at), made
def signature(oid, kind):  # as git judges it; behind its first line ssh-keygen prints the signer's text
    failed, _, said = git("verify-" + kind, "--raw", oid)
    begin = "-----BEGIN (SSH SIGNATURE|PGP SIGNATURE|PGP MESSAGE|SIGNED MESSAGE)-----"
    marks = re.findall(("^gpgsig " if kind == "commit" else "^") + begin, read(oid, kind), re.M) or ["SSH"]
    if marks[0 if kind == "commit" else -1].startswith("SSH"):
        good = re.match(r'Good "git" signature (?:for (.+) )?with \S+ key (\S+)\n', said) or {1: "", 2: ""}
        state = "good" if good[1] and not failed else "bad" if said.startswith("Could not verify") else "unknown"
        return {"state": state, "signer": good[1] if state == "good" else "", "key": good[2]}
    words = dict(rows := re.findall(r"^\[GNUPG:\] (\S+) ?(.*)", said, re.M))
    good = "unknown" if failed or {"TRUST_UNDEFINED", "TRUST_NEVER"} & words.keys() else "good"
    states = {"BADSIG": "bad", "REVKEYSIG": "revoked", "EXPKEYSIG": "expired", "EXPSIG": "expired", "GOODSIG": good}
    found = [word for word, _ in rows if word in states or word == "ERRSIG"]
    key, _, signer = words[found[0]].partition(" ") if len(found) == 1 else ("", "", "")
    state, key = states.get(found[0], "unknown") if key else "unknown", words.get("VALIDSIG", key).partition(" ")[0]
    return {"state": state, "signer": "" if "ERRSIG" in found else signer, "key": key}
def cbor(value):  # RFC 8949, section 4.2
    def head(major, size):
        forms = ((24, size, ""), (2**8, 24, ">B"), (2**16, 25, ">H"), (2**32, 26, ">I"), (2**64, 27, ">Q"))
        _, mark, form = next(each for each in forms if size < each[0])
        return bytes((major << 5 | mark,)) + (struct.pack(form, size) if form else b"")
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value]
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 2**53):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, (int, float)):
        return head(0, int(value)) if value >= 0 else head(1, -1 - int(value))
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    return head(5, len(value)) + b"".join(map(b"".join, sorted((cbor(key), cbor(value[key])) for key in value)))
def node_name(node):  # XXH64 of the type and the payload, in Crockford's base 32
    data, one, two, three, four, five = (node["type"].encode() + cbor(node["payload"]), 11400714785074694791,
        14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)
    cut = 2**64 - 1
    turned = lambda word, by: (word << by | word >> 64 - by) & cut
    mixed = lambda last, word: turned(last + word * two & cut, 31) * one & cut
    total, at = five, len(data) & ~31
    if at:
        lanes = [one + two & cut, two, 0, -one & cut]
        for words in struct.iter_unpack("<4Q", data[:at]):
            lanes = [mixed(*pair) for pair in zip(lanes, words, strict=True)]
        total = sum(turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & cut
        for lane in lanes:
            total = (total ^ mixed(0, lane)) * one + four & cut
    total = total + len(data) & cut
    while len(data) - at >= 8:
        total, at = turned(total ^ mixed(0, *struct.unpack_from("<Q", data, at)), 27) * one + four & cut, at + 8
    if len(data) - at >= 4:
        total, at = turned(total ^ struct.unpack_from("<I", data, at)[0] * one & cut, 23) * two + three & cut, at + 4
    for byte in data[at:]:
        total = turned(total ^ byte * five & cut, 11) * one & cut
    total = (total ^ total >> 33) * two & cut
    total = (total ^ total >> 29) * three & cut
    return "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[(total ^ total >> 32) >> by & 31] for by in range(60, -5, -5))
def canonical(value):  # RFC 8785, but for numbers that are no integers: then None
    return None if re.search(r"\b\d+[.eE]", re.sub(r'"(?:[^"\\]|\\.)*"', "", json.dumps(value))) else json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
def added(before, after):  # the files of nodes that a commit adds
    rows = read(after, "commit") and git("-c", "core.quotePath=false", "diff-tree", "-r", before, after)[1]
    return {node: blob for blob, node in re.findall(NODE, rows, re.M)}
def load(text, name):  # the payload of a node's file
    if node_name(node := json.loads(text)) != name:
        wrong.append(f"node {name} has another hash than its name")
    return node["payload"]
def offered(schema):  # the names of fields with a list of values
    if isinstance(schema, list):
        return set().union(*map(offered, schema))
    fields = schema.get("properties", {}) if isinstance(schema, dict) else {}
    names = {name for name, each in fields.items() if re.search('"(enum|const)": ', json.dumps(each))}
    within = schema.values() if isinstance(schema, dict) else ()
    return names.union(*(offered(each) for each in within if isinstance(each, (dict, list))))
def deciding(schema, output):
    if not isinstance(output, dict):
        return output
    names = offered(schema)
    return {name: value for name, value in output.items() if name in names or isinstance(value, bool)} or output
def person(made, by, policy):  # the names under which an approver may be listed
    email, mark = by["email"].casefold(), made["signature"]
    known = [policy["keys"][mark["key"]]] if mark and mark["key"] in policy["keys"] else []
    names = {email, f"{by['name']} <{by['email']}>", *known, *([mark["signer"]] if mark and mark["signer"] else [])}
    names |= {group for group, members in policy["groups"].items() if names & set(members)}
    return names if policy["keys"] else names | {by["name"]}
def policy_at(when):  # the people by their keys, and the groups, in force at a time
    return next((each for each in policies if each["time"] <= when), (policies or [{"keys": {}, "groups": {}}])[-1])
def read_policies():  # from the newest to that of --policy, by the page of each, which pages of uwf's are checked for
    tip, found = git("rev-parse", "-q", "--verify", "refs/uwf/trust/policy")[1].strip(), []
    chain = git("rev-list", tip)[1].split() if tip else []
    if args.policy not in chain:
        sys.exit(f"the trust policy of CLONE does not stand on {args.policy}")
    for oid in chain[:chain.index(args.policy) + 1]:
        page, made = git("show", f"{oid}:README.md")[1].replace("\\", ""), made_by(oid, "commit")
        rows = re.findall(r"^\| (\S+) \| \w+ \| `([^`]+)` \| (.*?) *\|$", page, re.M)
        keys = {key: who for who, key, valid in rows if valid != "revoked"}
        rows = re.findall(r"^- (\S+): (.+)$", page.partition("\n## Groups\n")[2], re.M)
        groups = {name: members.split(", ") for name, members in rows}
        heads = re.findall(r"^Changes of this policy are signed by: (.*)\.$", page, re.M)[0].split(", ")
        heads = {member for head in heads for member in groups.get(head, [head])}
        mark = made[3]["signature"] or {"key": "", "state": ""}
        found.append({"keys": keys, "groups": groups, "time": made[2], "by": mark, "oid": oid, "maintainers": heads})
    for number, version in enumerate(found[:-1], 1):
        before = found[number]
        if before["keys"].get(version["by"]["key"]) not in before["maintainers"] or version["by"]["state"] != "good":
            wrong.append(f"policy {version['oid']} is not signed by a maintainer of the one before")
    return found
def authors(head):  # the addresses and keys of those who made any part of what is judged at a head
    found, pending, seen = set(), [head], {head}
    while pending:
        text, parents, _, made = made_by(pending.pop(), "commit")
        kind = re.findall(r"^Uwf-(Start|Step|Part): ", text, re.M)
        agent = re.findall(r"^Uwf-Agent: (.*)$", text, re.M)[-1:]
        gate = len(parents) == 2 and agent == ["uwf-human"] and "\nUwf-Approval: " in read(parents[1], "commit")
        if kind and kind[-1] != "Part" and agent != ["human"] and not gate:
            found |= {made["by"]["email"].casefold(), (made["signature"] or {"key": ""})["key"]} - {""}
        pending += (more := [each for each in parents if kind and each not in seen])
        seen.update(more)
    return found | {each["keys"][key] for each in policies for key in found if key in each["keys"]}
def decide(number, step, flow, at, head, before, detail, output, payload, nodes):  # a person's step and its approvals
    prompt, asked, last = before
    role, named = flow["roles"].get(step["role"], {}), detail.get("approvals") or []
    say = lambda text, where=wrong: where.append(f"step {number}: {text}")
    parents, quorum, made = made_by(at, "commit")[1], role.get("quorum", 1), set()
    if step["agent"] == "uwf-rehearse":
        unproved.append(f"step {number}: its approvals are made up")
        return
    is_gate, given = bool(role.get("approvers")), {}
    if is_gate:  # each approval has a commit, the newest first
        log = git("rev-list", "--topo-order", parents[-1], f"^{head}")[1].split() if len(parents) == 2 else []
        for oid in log:
            text, above, when, by = made_by(oid, "commit")
            found = re.findall(r"^Uwf-Approval: (\S+)$", text, re.M)
            if found and not (len(above) == 2 and "\nUwf-Approval: " in read(above[1], "commit")):
                said = load(git("show", f"{oid}:approvals/{found[-1]}/nodes/{found[-1]}.json")[1], found[-1])
                given[found[-1]] = said, above[-1], when, by
        if role.get("notAuthor"):
            made = authors(head)
    counting, later, taken = set(), {}, {}
    for node, (said, _, _, by) in given.items():
        if "approval" in said:
            taken[said["approval"]] = by["by"]
        elif said["role"] == step["role"] and said["prev"] == step["prev"]:
            later.setdefault(by["by"]["email"].casefold(), node)
    for node in named:
        if is_gate and node not in given:
            say(f"approval {node} has no commit that the step stands on")
            continue
        said, on, when, by = given.get(node) or (payload(node), head, 0, made_by(at, "commit")[3])
        mark, wanted = by["signature"], (step["start"], step["prev"], step["role"])
        who = f"{said['by']['name']} <{said['by']['email']}>"
        if (said["start"], said["prev"], said["role"]) != wanted or on != head:
            say(f"approval {node} is of another head or role")
        if by["by"] != said["by"] or (is_gate and when != said["at"]):
            say(f"approval {node} is not of the person and time that it names, {who}")
        parts = {part["name"]: part["sha256"] for part in said["shown"]["of"]}
        shown = {"task": sha256(prompt), "instruction": sha256(asked or None), "output": sha256(canonical(last))}
        for name in shown if asked is not None else ("task",):
            if name in parts and shown[name] and parts[name] != shown[name]:
                say(f"{who} was shown another {name}")
        if sha256("".join(f"{p['name']} {p['sha256']}\n" for p in said["shown"]["of"])) != said["shown"]["digest"]:
            say(f"the digest of approval {node} is not that of its parts")
        if not is_gate:
            if said["output"] != step["output"]:
                say(f"{who} answered otherwise")
            continue
        kept = re.findall(rf" (\S+)\t\S+/{said['output']}\.json$", git("ls-tree", "-r", parents[-1])[1], re.M)
        theirs = load(read(nodes.get(said["output"]) or kept[0], "blob"), said["output"])
        schema = payload(role["outputSchema"]) if role.get("outputSchema") in nodes else None
        if deciding(schema, theirs) != deciding(schema, output):
            say(f"{who} approved {json.dumps(theirs)[:200]}, and the step says {json.dumps(output)[:200]}")
        names, policy = person(by, said["by"], policy_at(when)), policy_at(when)
        entry = next((name for name in role["approvers"] if name in names or name.casefold() in names), "")
        if later.get(said["by"]["email"].casefold(), node) != node or taken.get(node) == said["by"]:
            say(f"{who} took approval {node} back, or answered anew")
        if made & {*names, (mark or {"key": ""})["key"]}:
            say(f"{who} made a part of what is judged")
        if not mark or mark["state"] != "good":
            say(f"the approval of {who} has no good signature by --signers", wrong if role.get("signed") else unproved)
        elif "@" in mark["signer"] and mark["signer"].casefold() != said["by"]["email"].casefold():
            say(f"the approval of {who} is signed by {mark['signer']}")
        if not entry:
            people = {*policy["groups"], *policy["keys"].values()}
            told = all("@" in name or name in people for name in role["approvers"])
            say(f"{who} is not known to be one of {', '.join(role['approvers'])}", wrong if told else unproved)
        counting.add(entry or who)
    if is_gate and len(counting) < quorum:
        say(f"role {step['role']} needs {quorum} approvals, and has {len(counting)}")
def run(head, depth=0):  # a thread's record, and its texts
    chain = [(head, *made_by(head, "commit"))]
    while "\nUwf-Step: " in chain[-1][1]:
        chain.append((chain[-1][2][0], *made_by(chain[-1][2][0], "commit")))
    (at, text, (version, *_), _, made), *chain = reversed(chain)
    nodes = added(EMPTY, version) | added(version, at)
    about = lambda text: re.findall(r"^Uwf-(?:Start|Step): (\S+)$", text, re.M)[-1]
    payload = lambda node: load(read(nodes[node], "blob"), node)
    begun, texts, before, last, joins = payload(about(text)), [], at, None, False
    flow = payload(begun["workflow"])
    record = {"head": head, "steps": [], "approvals": []}
    record["workflow"] = {"name": flow["name"], "node": begun["workflow"], "commit": version}
    record["start"] = {"node": about(text), "commit": at, "prompt": sha256(begun["prompt"]), **made}
    for number, (at, text, parents, seconds, made) in enumerate(chain, 1):
        nodes |= added(before, at)
        step, before = payload(about(text)), at
        detail, output = payload(step["detail"]), payload(step["output"])
        inner = parents[1:] if isinstance(detail, dict) and detail.keys() == step.keys() and depth < 8 else []
        detail = detail if isinstance(detail, dict) and {"answer", "turns", "usage"} <= detail.keys() else {}
        told = {name: detail.get(name) for name in ("durationMs", "model", "session", "usage", "cost", "code")}
        took, asked, given = told["durationMs"], detail.get("instruction"), []
        record["steps"].append({
            "number": number, "role": step["role"], "agent": step["agent"], "node": about(text), "commit": at,
            "started": None if took is None else iso(seconds - took // 1000), **told, **made,
            "prompt": {"instruction": sha256(asked), "context": detail.get("context")},
            "output": {"node": step["output"], "sha256": sha256(read(nodes[step["output"]], "blob"))},
            "child": run(inner[0], depth + 1)[0] if inner else None})
        texts.append({"number": number, "instruction": asked, "output": output})
        if (code := told["code"]) and ID.fullmatch(code["commit"]):
            failed, tree, _ = git("rev-parse", "-q", f"{code['commit']}^{{tree}}", clone=args.code)
            if failed or tree.strip() != code["tree"]:
                (unproved if failed else wrong).append(f"step {number} left code {code}")
        kind = "remark" if isinstance(output, dict) and output.keys() == {"remark"} else "answer"
        kind = kind if step["role"] == "$USER" else "decision"
        for node in detail.get("approvals", ()):
            log = git("log", "--format=%H", f"--grep=^Uwf-Approval: {node}$", parents[-1], f"^{parents[0]}")[1].split()
            said = {"shown": payload(node)["shown"]["digest"], "reason": payload(node).get("reason", "")}
            given.append({"node": node, "commit": (log or [at])[-1]} | said | made_by((log or [at])[-1], "commit")[3])
        joins = joins or step["role"] == "$JOIN"
        if kind == "decision" and (flow["roles"].get(step["role"], {}).get("approvers") or detail.get("approvals")):
            decide(number, step, flow, at, parents[0], (begun["prompt"], asked, last), detail, output, payload, nodes)
            joins and unproved.append(f"step {number} rests on branches, whose steps are not looked at")
        last = last if kind == "remark" else output
        if kind != "decision" or step["agent"] == "uwf-human" or flow["roles"].get(step["role"], {}).get("human"):
            record["approvals"].append({name: record["steps"][-1][name] for name in ("number", "role")} | made
                                       | {"kind": kind, "on": parents[0], "given": given})
    return record, {"prompt": begun["prompt"], "steps": texts}
def end(tag):
    text, _, _, made = made_by(tag, "tag")
    status, _, reason = text.partition("\n-----BEGIN ")[0].strip("\n").partition(": ")
    if not read(tag, "tag").startswith(f"object {head}\ntype commit\ntag uwf/{thread}\n"):
        wrong.append(f"tag {tag} is not that of thread {thread} at {head}")
    return {"status": status, "reason": reason, "tag": tag, **made}
def compare(said, found, path):
    if isinstance(said, dict) and isinstance(found, dict):
        for key in {**said, **found}.keys() - ({"rebuilt"} if path.startswith(".record") else set()):
            compare(said.get(key, "(nothing)"), found.get(key, "(nothing)"), f"{path}.{key}")
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        for number, pair in enumerate(zip(said, found, strict=True), 1):
            compare(*pair, f"{path}[{number}]")
    elif json.dumps(said) != json.dumps(found):
        wrong.append(f"{path[1:]} is said to be {json.dumps(said)[:200]}, but is {json.dumps(found)[:200]}")
def signer(data, signature):  # who signed, "" if nobody is known to
    signers = args.signers or "/dev/null"
    with tempfile.TemporaryDirectory() as folder:
        file, message = pathlib.Path(folder, "signature"), pathlib.Path(folder, "data")
        file.write_bytes(signature), message.write_bytes(data)
        if signature.startswith(b"-----BEGIN SSH"):
            found = called("ssh-keygen", "-Y", "find-principals", "-f", signers, "-s", file).stdout.split(b"\n")[0]
            check = [("ssh-keygen", "-Y", "verify", "-f", signers, "-I", found, "-n", "uwf", "-s", file)]
        elif signature.startswith(b"-----BEGIN PGP"):
            found, check = b"a key of gpg", [("gpg", "--verify", file, message)]
        else:
            found, words = (args.key or "").encode(), ("openssl", "pkeyutl", "-verify", "-pubin", "-rawin", "-inkey")
            words = (*words, args.key or "/dev/null", "-in", message, "-sigfile", file)
            check = [words, *((*words, "-digest", f"sha{bits}") for bits in (256, 384, 512))]
        return found.decode() if any(not called(*each, data=data).returncode for each in check) else ""

parser = argparse.ArgumentParser(usage=__doc__)
[parser.add_argument(name) for name in ("file", "clone", "--signers", "--policy", "--key", "--code")]
parser.add_argument("--accept-unproved", action="store_true")
args = parser.parse_args()
once = lambda pairs: dict(pairs) if len(dict(pairs)) == len(pairs) else sys.exit("FILE has a name twice")
report, subjects = json.loads(pathlib.Path(args.file).read_bytes(), object_pairs_hook=once), []
if kind := report.get("payloadType"):  # an attestation
    body, mark = base64.b64decode(report["payload"]), base64.b64decode(report["signatures"][0]["sig"])
    data = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(body), body)
    record, subjects = map(json.loads(body, object_pairs_hook=once).get, ("predicate", "subject"))
else:
    mark = (report.pop("signature") or "").encode()
    data, record = json.dumps(report, sort_keys=True, separators=(",", ":")).encode(), report["record"]
thread, head = record["thread"], ID.fullmatch(record["head"])[0]
any(git("rev-list", "--objects", "--verify-objects", head)[::2]) and sys.exit(f"commit {head} is gone, or damaged")
refs = git("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)")[1]
tips = re.findall(rf"^(\S*)/{re.escape(thread)} (\S+) ?(\S*)$", refs, re.M)
unproved += [] if head in sum(tips, ()) else [f"no ref of thread {thread} is at {head}"]
tag = next((tag for ref, tag, _ in tips if ref == "refs/uwf/archive"), (record["end"] or {"tag": ""})["tag"])
policies = read_policies() if args.policy else []
found, texts = run(head)
found |= {"thread": thread, "end": end(ID.fullmatch(tag)[0]) if tag else None}
words = {name: report[name] for name in ("unknown", "verification") if not kind} | {"record": found}
compare({"record": record} if kind else report, words | ({} if kind else {"format": FORMAT, "texts": texts}), "")
wrong += [f"subject {s}" for s in subjects if not set(s["digest"].values()) <= set(ID.findall(json.dumps(found)))]
by = signer(data, mark)
unproved += [] if by else ["what FILE says of verification and rebuilt prompts: no known key signed it"]
told = [ascii(line)[1:-1] for line in (*map("wrong: {}".format, wrong), *map("not proved: {}".format, unproved))]
print(*told, f"{head}: {'something is wrong' if wrong else 'as said'}{f', signed by {by}' if by else ''}", sep="\n")
sys.exit(1 if wrong or (unproved and not args.accept_unproved) else 0)
