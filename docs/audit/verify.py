"""Compare an audit report or an attestation of uwf with a git clone, without uwf: Python, git and ssh-keygen.

    python3 verify.py FILE CLONE [--signers FILE] [--policy COMMIT] [--key PEM] [--code CLONE] [--accept-unproved]

--signers: the keys that may sign, as ssh-keygen(1) describes; OpenPGP keys are gpg's. --policy: a version of the trust
policy that you know from elsewhere, on which that of CLONE must stand. --key: an attestation's, for openssl.
Exit 0: each word of FILE is in the thread's commits, or signed, and each decision follows from its approvals, and those
within branches, sub-workflows and calls of code do. 1: something differs, or is not proved. Not looked at: whether the
workflow called for each step and branch, whether a branch ended as its join says, how code was merged, and what a diff
showed. For these there is the word of whoever signed FILE, after `uwf verify`; without it they are not proved."""
import argparse, base64, functools, hashlib, json, pathlib, re, struct, subprocess, sys, tempfile, time
FORMAT, EMPTY = "https://uwf-git.invalid/schemas/audit-report/v1", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
NODE = r"^:\S+ \S+ \S+ (\S+) \S\t(?:workflow|start|steps/(?:[0-9]+xx/)?[^/\n]+)/nodes/([0-9A-Z]{13})\.json$"
ID, wrong, unproved = re.compile("[0-9a-f]{40,64}"), [], []
members = lambda names, policy: {*names, *(each for name in names for each in policy["groups"].get(name, ()))}
called = lambda *words, data=None: subprocess.run(words, input=data, capture_output=True)
sys.excepthook = lambda kind, error, _: sys.stderr.write(f"not compared: {kind.__name__}: {ascii(str(error))[:200]}\n")
iso = lambda seconds: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
sha256 = lambda text: None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

def git(*words, clone=None):
    signers = ("-c", f"gpg.ssh.allowedSignersFile={pathlib.Path(args.signers).absolute()}") if args.signers else ()
    done = called("git", "--no-replace-objects", "-C", clone or args.clone, *signers, *words)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
@functools.cache
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
@functools.cache
def signature(oid, kind):  # as git judges it; behind its first line ssh-keygen prints the signer's text
    failed, _, said = git("verify-" + kind, "--raw", oid)
    if re.match("(error|fatal): (could not create|failed writing|cannot )", said):
        sys.exit(f"signatures could not be checked: {said.splitlines()[0]}")
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
def canonical(value):  # RFC 8785, but for numbers with an exponent or a fraction of 0: then None
    return None if re.search(r"\d[eE]|\.0\b", re.sub(r'"(?:[^"\\]|\\.)*"', "", json.dumps(value))) else json.dumps(
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
def owner(mark, at, among):  # whose key signed, by the first of some policies that has it, and why it may not count
    for policy in among if mark else []:
        if who := policy["keys"].get(mark["key"]):
            valid = policy["valid"][mark["key"]]
            until = min([valid[word] for word in ("until", "revoked") if word in valid], default=None)
            if at < valid.get("from", "") or (until is not None and at >= until):
                return who, wrong, f"is signed by {who} with a key that did not count then"
            late = until is not None and iso(time.time()) >= until
            return who, unproved if late else None, f"is signed by {who} with a key that has ended since"
    return "", None, ""
def person(mark, by, policy, key):  # the names under which an approver may be listed, of whom `key` is the key
    who = mark and mark["signer"], key if mark else policy["emails"].get(by["email"].casefold())
    names = {by["email"].casefold(), f"{by['name']} <{by['email']}>", *who} - {None, ""}
    names |= {group for group, people in policy["groups"].items() if names & {*people}}
    return names if policy["keys"] else names | {by["name"]}
def policy_at(at):  # the people by their keys and addresses, and the groups, in force at a time
    return next((each for each in policies if each["time"] <= at), (policies or [NOBODY])[-1])
def held(what, subject, kinds, name, oid, made):  # hold a record to the rules of the newest policy
    newest, mark, email = (policies or [NOBODY])[0], made["signature"], made["by"]["email"].casefold()
    for of, about, patterns, signers in newest["rules"]:
        fits = any(re.fullmatch(".*".join(map(re.escape, each.split("*"))), name) for each in patterns.split(", "))
        if about != subject or not fits or (of and not kinds & {*of.split(", ")}) or oid in newest["accepted"]:
            continue
        who, where, why = owner(mark, made["time"], [newest])
        where, why = (
            (wrong, "has no good signature") if not mark or mark["state"] == "bad" else
            (wrong, "is signed by a key of nobody in it") if not who else (where, why) if where is not None else
            (wrong, f"is signed by {who}") if signers and who not in members(signers.split(", "), newest) else
            (wrong, f"is signed by {who}, and committed as {email}") if newest["emails"].get(email, who) != who else
            (unproved, "has no good signature by --signers") if mark["state"] != "good" else (None, ""))
        if where is not None:
            where.append(f"{what} {why}: the trust policy wants {patterns} signed by {signers or 'somebody in it'}")
def read_policies():  # from the newest to that of --policy, by the page of each, which pages of uwf's are checked for
    tip, chain_of = git("rev-parse", "-q", "--verify", "refs/uwf/trust/policy")[1].strip(), []
    chain = git("rev-list", tip)[1].split() if tip else []
    if args.policy not in chain:
        sys.exit(f"the trust policy of CLONE does not stand on {args.policy}")
    for oid in chain[:chain.index(args.policy) + 1]:
        page, made = git("show", f"{oid}:README.md")[1].replace("\\", ""), made_by(oid, "commit")
        text = git("show", f"{oid}:trust.yaml")[1]
        rows = re.findall(r"^\| (\S+) \| \w+ \| `([^`]+)` \| (.*?) *\|$", page, re.M)
        keys, emails, at = {key: who for who, key, _ in rows}, {}, ""
        for name, address in re.findall(r"([\w.-]+)['\"]?\s*:|([^][\s,{}\"'<>]+@[^][\s,{}\"'<>]+)", text):
            at = name if name in keys.values() else at  # of this person are the addresses that follow
            emails |= {address.casefold(): at} if address and at else {}
        rows = {key: re.findall(r"(from|until|revoked)(?: (\S+Z))?", valid) for _, key, valid in rows}
        groups = re.findall(r"^- (\S+): (.+)$", page.partition("\n## Groups\n")[2], re.M)
        rules = page.partition("\n## Rules\n")[2].partition("\n## ")[0]
        heads = re.findall(r"^Changes of this policy are signed by: (.*)\.$", page, re.M)[0].split(", ")
        chain_of.append({
            "keys": keys, "valid": {key: dict(row) for key, row in rows.items()}, "emails": emails, "heads": heads,
            "groups": {name: people.split(", ") for name, people in groups}, "time": made[3]["time"], "oid": oid,
            "mark": made[3]["signature"] or {"key": "", "state": ""},
            "rules": re.findall(r"^- (?:(.+) of )?(threads|workflows|crews) (.+): signed(?: by (.+))?$", rules, re.M),
            "accepted": {*git("rev-list", "--ignore-missing", *ids)[1].split(), *ids}
            if (ids := re.findall(r"\b[0-9a-f]{40}\b", text)) else set()})
    for number, version in enumerate(chain_of[:-1], 1):
        who, where, _ = owner(version["mark"], version["time"], [before := chain_of[number]])
        if where is wrong or version["mark"]["state"] != "good" or who not in members(before["heads"], before):
            wrong.append(f"policy {version['oid']} is not signed by a maintainer of the one before")
    return chain_of
def authors(head):  # the addresses, keys and people of those who made any part of what is judged at a head
    makers, pending, seen, signed = set(), [head], {head}, True
    while pending:
        text, parents, _, made = made_by(pending.pop(), "commit")
        kind = re.findall(r"^Uwf-(Start|Step|Part): ", text, re.M)
        agent = re.findall(r"^Uwf-Agent: (.*)$", text, re.M)[-1:]
        gate = len(parents) == 2 and agent == ["uwf-human"] and "\nUwf-Approval: " in read(parents[1], "commit")
        if kind and kind[-1] != "Part" and agent != ["human"] and not gate:
            mark = made["signature"] or {"key": "", "state": ""}
            makers, signed = makers | {made["by"]["email"].casefold(), mark["key"]}, signed and mark["state"] == "good"
        pending += (more := [each for each in parents if kind and each not in seen])
        seen.update(more)
    named = {each[by][one] for each in policies for one in makers for by in ("keys", "emails") if one in each[by]}
    return (makers | named) - {""}, signed
def decide(number, step, flow, at, head, before, detail, output, payload, nodes):  # a person's step and its approvals
    (prompt, asked, last, code), role = before, flow["roles"].get(step["role"], {})
    asked = asked or role.get("description", "").strip() or f"Play the role {step['role']}."
    shown = {"task": sha256(prompt), "instruction": sha256(asked), "code": sha256(code),
             "output": sha256(None if last is None else canonical(last)),
             "question": sha256(str(last["question"]) if isinstance(last, dict) and "question" in last else None)}
    say = lambda text, where=wrong: where.append(f"{number}: {text}")
    parents, made, is_gate, given = made_by(at, "commit")[1], set(), bool(role.get("approvers")), {}
    if not policies and git("rev-parse", "-q", "--verify", "refs/uwf/trust/policy")[1]:
        say("nothing is held to the trust policy of CLONE, of which --policy names no version", unproved)
    if step["agent"] == "uwf-rehearse":
        say("its approvals are made up", unproved)
        return
    if is_gate:  # each approval has a commit, the newest first
        for oid in git("rev-list", "--topo-order", parents[-1], f"^{head}")[1].split() if len(parents) == 2 else []:
            text, above, when, by = made_by(oid, "commit")
            found = re.findall(r"^Uwf-Approval: (\S+)$", text, re.M)
            if found and not (len(above) == 2 and "\nUwf-Approval: " in read(above[1], "commit")):
                said = load(git("show", f"{oid}:approvals/{found[-1]}/nodes/{found[-1]}.json")[1], found[-1])
                given[found[-1]] = said, above[-1], when, by | {"oid": oid}
        if role.get("notAuthor"):
            made, signed = authors(head)
            signed or say("who made what is judged is told by commits without a good signature", unproved)
    counting, later, taken = set(), {}, {}
    for node, (said, _, _, by) in given.items():
        if "approval" in said:
            taken[said["approval"]] = by["by"]
        elif said["role"] == step["role"] and said["prev"] == step["prev"]:
            later.setdefault(by["by"]["email"].casefold(), node)
    for node in detail.get("approvals") or []:
        if is_gate and node not in given:
            say(f"approval {node} has no commit that the step stands on")
            continue
        said, on, when, by = given.get(node) or (payload(node), head, 0, made_by(at, "commit")[3])
        mark, who = by["signature"], f"{said['by']['name']} <{said['by']['email']}>"
        same = on == head and all(said[name] == step[name] for name in ("start", "prev", "role"))
        same or say(f"approval {node} is of another head or role")
        if by["by"] != said["by"] or (is_gate and when != said["at"]):
            say(f"approval {node} is not of the person and time that it names, {who}")
        parts = {part["name"]: part["sha256"] for part in said["shown"]["of"]}
        for name in parts.keys() - {"diff"}:
            if parts[name] != shown.get(name):
                say(f"{who} was shown another {name}", wrong if shown.get(name) else unproved)
        if sha256("".join(f"{p['name']} {p['sha256']}\n" for p in said["shown"]["of"])) != said["shown"]["digest"]:
            say(f"the digest of approval {node} is not that of its parts")
        if not is_gate:
            said["output"] == step["output"] or say(f"{who} answered otherwise")
            continue
        kept = re.findall(rf" (\S+)\t\S+/{said['output']}\.json$", git("ls-tree", "-r", parents[-1])[1], re.M)
        theirs = load(read(nodes.get(said["output"]) or kept[0], "blob"), said["output"])
        schema = payload(role["outputSchema"]) if role.get("outputSchema") in nodes else None
        if deciding(schema, theirs) != deciding(schema, output):
            say(f"{who} approved {json.dumps(theirs)[:200]}, and the step says {json.dumps(output)[:200]}")
        policy, email = policy_at(by["time"]), said["by"]["email"].casefold()
        key, where, why = owner(mark, by["time"], [*policies[:1], policy])
        names = person(mark, said["by"], policy, key)
        held(f"{number}: the approval of {who}", "threads", {"answers"}, flow["name"], by["oid"], by)
        where is None or say(f"the approval of {who} {why}", where)
        if mark and policy["keys"] and (not key or policy["emails"].get(email, key) != key):
            say(f"the approval of {who} is signed by {key or 'a key that the trust policy does not have'}")
        if not mark and email in policy["emails"] and by["oid"] not in policies[0]["accepted"]:
            say(f"{who} has a key in the trust policy, and did not sign")
        entry = next((name for name in role["approvers"] if name in names or name.casefold() in names), "")
        if later.get(said["by"]["email"].casefold(), node) != node or taken.get(node) == said["by"]:
            say(f"{who} took approval {node} back, or answered anew")
        if made & {*names, (mark or {"key": ""})["key"]}:
            say(f"{who} made a part of what is judged")
        if not mark or mark["state"] != "good":
            say(f"the approval of {who} has no good signature by --signers", wrong if role.get("signed") else unproved)
        elif not policies and "@" in mark["signer"] and mark["signer"].casefold() != said["by"]["email"].casefold():
            say(f"the approval of {who} is signed by {mark['signer']}")
        if not entry:
            told = {*policy["groups"], *policy["keys"].values()} >= {n for n in role["approvers"] if "@" not in n}
            say(f"{who} is not known to be one of {', '.join(role['approvers'])}", wrong if told else unproved)
        counting.add(entry or who)
    if is_gate and len(counting) < role.get("quorum", 1):
        say(f"role {step['role']} needs {role.get('quorum', 1)} approvals, and has {len(counting)}")
def joined(oid):  # the threads that a further parent of a step is, or gathers
    text, parents, *_ = made_by(oid, "commit")
    kind = re.findall(r"^Uwf-(Start|Step|Part): ", text, re.M)[-1:]
    return [tip for each in parents for tip in joined(each)] if kind == ["Part"] else [oid] if kind else []
def open_threads(label, tips, output, before, depth):  # check branches and calls as the thread, and what a join says
    said = [each for each in enumerate(output["branches"]) if each[1]["status"] != "left"] if before else None
    if said is not None and len(said) != len(tips):
        wrong.append(f"{label} says that {len(said)} branches ended, and joins {len(tips)}")
    for place, tip in enumerate(tips):
        record, texts, begun = run(tip, depth + 1, f"{label}, branch {place}, ")
        if said is None or place >= len(said):
            continue
        position, branch = said[place]
        own = {step["number"] for step in record["steps"] if step["role"] not in ("$USER", "$FORK")}
        answers = [None, *(text["output"] for text in texts["steps"] if text["number"] in own)]
        last = ([None] + [step["node"] for step in record["steps"]])[-1]
        if [begun.get("branch", {}).get(name) for name in ("fork", "index")] != [before, position]:
            wrong.append(f"{label} joins {tip}, which is not its branch {position}")
        if (branch["step"], repr(branch["output"])) != (last, repr(answers[-1])):
            wrong.append(f"{label} says otherwise of thread {branch['thread']} than its steps do")
def code_of(steps):  # the commit of the newest code that steps, or those of a sub-workflow, left
    left = lambda one: one["code"]["commit"] if one["code"] else one["child"] and code_of(one["child"]["steps"])
    return next(filter(None, map(left, reversed(steps))), None)
def run(head, depth=0, label=""):  # a thread's record, its texts, and its start
    chain = [(head, *made_by(head, "commit"))]
    while "\nUwf-Step: " in chain[-1][1]:
        chain.append((chain[-1][2][0], *made_by(chain[-1][2][0], "commit")))
    (at, text, (version, *_), _, made), *chain = reversed(chain)
    nodes = added(EMPTY, version) | added(version, at)
    about = lambda text: re.findall(r"^Uwf-(?:Start|Step): (\S+)$", text, re.M)[-1]
    payload = lambda node: load(read(nodes[node], "blob"), node)
    begun, texts, before, last, fork = payload(about(text)), [], at, None, None
    flow = payload(begun["workflow"])
    record = {"head": head, "steps": [], "approvals": []}
    record["workflow"] = {"name": flow["name"], "node": begun["workflow"], "commit": version}
    record["start"] = {"node": about(text), "commit": at, "prompt": sha256(begun["prompt"]), **made}
    held(f"{label}the start", "threads", {"starts"}, flow["name"], at, made)
    of_crew, by = "\nUwf-Crew: " in (words := made_by(version, "commit"))[0], words[3]
    held("its workflow", "crews" if of_crew else "workflows", set(), flow["name"].split("/")[0], version, by)
    for number, (at, text, parents, seconds, made) in enumerate(chain, 1):
        nodes |= added(before, at)
        step, before = payload(about(text)), at
        detail, output = payload(step["detail"]), payload(step["output"])
        of_sub = isinstance(detail, dict) and detail.keys() == step.keys()
        inner, at_step = parents[1:] if of_sub and depth < 8 else [], f"{label}step {number}"
        played = flow["roles"].get(step["role"], {})
        is_answer = step["role"] == "$USER" or played.get("human")
        kinds = {"answers"} if is_answer else {"steps", "answers"} if step["agent"] == "uwf-human" else {"steps"}
        held(at_step, "threads", kinds, flow["name"], at, made)
        detail = detail if isinstance(detail, dict) and {"answer", "turns", "usage"} <= detail.keys() else {}
        told = {name: detail.get(name) for name in ("durationMs", "model", "session", "usage", "cost", "code")}
        took, asked, given = told["durationMs"], detail.get("instruction"), []
        record["steps"].append({
            "number": number, "role": step["role"], "agent": step["agent"], "node": about(text), "commit": at,
            "started": None if took is None else iso(seconds - took // 1000), **told, **made,
            "prompt": {"instruction": sha256(asked), "context": detail.get("context")},
            "output": {"node": step["output"], "sha256": sha256(read(nodes[step["output"]], "blob"))},
            "child": run(inner[0], depth + 1, f"{at_step}, ")[0] if inner else None})
        texts.append({"number": number, "instruction": asked, "output": output})
        if (code := told["code"]) and ID.fullmatch(code["commit"]):
            failed, tree, _ = git("rev-parse", "-q", f"{code['commit']}^{{tree}}", clone=args.code)
            if failed or tree.strip() != code["tree"]:
                (unproved if failed else wrong).append(f"{at_step} left code {code}")
        kind = "remark" if isinstance(output, dict) and output.keys() == {"remark"} else "answer"
        kind = kind if step["role"] == "$USER" else "decision"
        for node in detail.get("approvals", ()):
            log = git("log", "--format=%H", f"--grep=^Uwf-Approval: {node}$", parents[-1], f"^{parents[0]}")[1].split()
            said = {"shown": payload(node)["shown"]["digest"], "reason": payload(node).get("reason", "")}
            given.append({"node": node, "commit": (log or [at])[-1]} | said | made_by((log or [at])[-1], "commit")[3])
        tips = [] if inner else [tip for each in parents[1:] for tip in joined(each)]
        if tips and depth >= 8:
            unproved.append(f"{at_step} rests on {len(tips)} threads that are nested too deep to be looked at")
        elif tips or step["role"] == "$JOIN":
            open_threads(at_step, tips, output, fork if step["role"] == "$JOIN" else None, depth)
        fork = about(text) if step["role"] == "$FORK" else fork
        if (kind == "decision" and played.get("approvers")) or detail.get("approvals"):
            context = begun["prompt"], asked, last, code_of(record["steps"][:-1])
            decide(at_step, step, flow, at, parents[0], context, detail, output, payload, nodes)
        last = last if kind == "remark" else output
        if kind != "decision" or step["agent"] == "uwf-human" or played.get("human"):
            record["approvals"].append({name: record["steps"][-1][name] for name in ("number", "role")} | made
                                       | {"kind": kind, "on": parents[0], "given": given})
    return record, {"prompt": begun["prompt"], "steps": texts}, begun
def end(tag):
    text, _, _, made = made_by(tag, "tag")
    status, _, reason = text.partition("\n-----BEGIN ")[0].strip("\n").partition(": ")
    if not read(tag, "tag").startswith(f"object {head}\ntype commit\ntag uwf/{thread}\n"):
        wrong.append(f"tag {tag} is not that of thread {thread} at {head}")
    held("the end", "threads", {"ends"}, found["workflow"]["name"], tag, made)
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
NOBODY = {"keys": {}, "emails": {}, "groups": {}, "rules": [], "accepted": set()}
policies = read_policies() if args.policy else []
found, texts, _ = run(head)
own = re.findall(r"^Uwf-Thread: (\S+)$", made_by(found["start"]["commit"], "commit")[0], re.M)[-1:] or [thread]
if own != [thread] and not any(ref == "refs/uwf/forks" for ref, _, _ in tips):
    unproved.append(f"its start is that of thread {own[0]}, and nothing here says that {thread} is a fork of it")
damage = json.dumps([] if kind else report["verification"]["findings"])[:200]
wrong += [f"FILE says itself what is wrong: {damage}"] if damage != "[]" else []
found |= {"thread": thread, "end": end(ID.fullmatch(tag)[0]) if tag else None}
words = {name: report[name] for name in ("unknown", "verification") if not kind} | {"record": found}
compare({"record": record} if kind else report, words | ({} if kind else {"format": FORMAT, "texts": texts}), "")
wrong += [f"subject {s}" for s in subjects if not set(s["digest"].values()) <= set(ID.findall(json.dumps(found)))]
by = signer(data, mark) if mark else ""
unproved += [] if by else ["what FILE says of verification and rebuilt prompts: no known key signed it"]
told = [ascii(line)[1:-1] for line in (*map("wrong: {}".format, wrong), *map("not proved: {}".format, unproved))]
print(*told, f"{head}: {'something is wrong' if wrong else 'as said'}{f', signed by {by}' if by else ''}", sep="\n")
sys.exit(1 if wrong or (unproved and not args.accept_unproved) else 0)
