"""Compare an audit report or an attestation of uwf with a git clone, without uwf: Python, git and ssh-keygen.

    python3 verify.py FILE CLONE [--signers FILE] [--key PEM] [--code CLONE] [--accept-unproved]

--signers: the keys that may sign, as ssh-keygen(1) describes; OpenPGP keys are gpg's. --key: an attestation's, for
openssl. Exit 0: each word of FILE is in the thread's commits, or signed. 1: something differs, or is not proved.
"""
import argparse, base64, hashlib, json, pathlib, re, subprocess, sys, tempfile, time
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
def added(before, after):  # the files of nodes that a commit adds
    rows = read(after, "commit") and git("-c", "core.quotePath=false", "diff-tree", "-r", before, after)[1]
    return {node: blob for blob, node in re.findall(NODE, rows, re.M)}
def run(head, depth=0):  # a thread's record, and its texts
    chain = [(head, *made_by(head, "commit"))]
    while "\nUwf-Step: " in chain[-1][1]:
        chain.append((chain[-1][2][0], *made_by(chain[-1][2][0], "commit")))
    (at, text, (version, *_), _, made), *chain = reversed(chain)
    nodes = added(EMPTY, version) | added(version, at)
    about = lambda text: re.findall(r"^Uwf-(?:Start|Step): (\S+)$", text, re.M)[-1]
    payload = lambda node: json.loads(read(nodes[node], "blob"))["payload"]
    begun, texts, before = payload(about(text)), [], at
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
[parser.add_argument(name) for name in ("file", "clone", "--signers", "--key", "--code")]
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
