// Audits a repository file by file, has each finding voted on, fixes what is confirmed in worktrees, and has the
// fixes merged and reviewed. `args` are {files, votes}, both optional.
export const meta = {
  name: "fan-out-script",
  description: "Audit file by file, vote, fix in worktrees, merge, review.",
  phases: [{ title: "List" }, { title: "Audit" }, { title: "Fix" }, { title: "Review" }],
};

const text = { type: "string" };
const object = (properties) => ({ type: "object", properties, required: Object.keys(properties) });
const FILES = object({ files: { type: "array", items: text } });
const FINDINGS = object({ findings: { type: "array", items: object({ claim: text, fix: text }) } });
const VOTE = object({ agrees: { type: "boolean" }, reason: text });
const FIXED = object({ commit: text, summary: text });
const REVIEW = object({ approved: { type: "boolean" }, comments: text });

phase("List");
const { votes = 3 } = args ?? {};
const { files } = args?.files
  ? args
  : await agent("List the source files of this repository that are worth an audit, the riskiest first.", {
      schema: FILES,
    });

/** A finding, or null if most of those who look at it don't see it. */
async function confirmed(file, finding) {
  const asked = Array.from({ length: votes }, (_, voter) => () =>
    agent(`You are voter ${voter + 1} of ${votes}. Read ${file} and try to refute this: ${finding.claim}`, {
      label: `vote on ${file}`,
      phase: "Audit",
      schema: VOTE,
    }),
  );
  const agreed = (await parallel(asked)).filter((vote) => vote?.agrees);
  return agreed.length * 2 > votes ? { file, ...finding } : null;
}

const fixed = await pipeline(
  files,
  (file) =>
    agent(`Audit ${file}. Report its mistakes, each with how to fix it; none if there are none.`, {
      label: `audit ${file}`,
      phase: "Audit",
      schema: FINDINGS,
    }),
  async (audit, file) => {
    const findings = await parallel((audit?.findings ?? []).map((each) => () => confirmed(file, each)));
    return findings.filter(Boolean);
  },
  (findings, file) =>
    findings.length === 0
      ? null
      : agent(`Fix this in ${file}, commit it, and say in which commit:\n\n${findings.map((each) => `- ${each.fix}`).join("\n")}`, {
          label: `fix ${file}`,
          phase: "Fix",
          isolation: "worktree",
          schema: FIXED,
        }),
);
const fixes = fixed.filter(Boolean);
log(`${fixes.length} of ${files.length} files fixed`);
if (fixes.length === 0) return { fixes, approved: true, comments: "nothing to fix" };

phase("Review");
const review = await agent(
  `Cherry-pick these commits onto the current branch, run the tests, and review the whole:\n\n` +
    fixes.map((each) => `- ${each.commit}: ${each.summary}`).join("\n"),
  { schema: REVIEW },
);
return { fixes, ...review };
