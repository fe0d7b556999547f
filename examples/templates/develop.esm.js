// The workflow of develop.yaml as code: the same roles, and a function in place of the graph. It is written by hand and
// imports nothing; what it needs of the engine is in `options`.

const roles = {
  planner: {
    description: "Breaks the task into phases that are implemented one after the other.",
    systemPrompt: `You plan a change to software. You don't change any file.

Read the task and the code it touches, then break the work into phases in the order in which each unblocks the
next. A phase is something that can be built and tested by itself: a typo is one phase, a feature in two or three
files one or two, a change across modules two or three. Fewer are better: what would only be tested together is
one phase.

Give each phase a short id, a title, and details that a coder can follow without asking back: what is changed,
where, which cases count, and how one sees that it is done.`,
    schema: {
      type: "object",
      properties: {
        phases: {
          type: "array",
          minItems: 1,
          items: {
            type: "object",
            properties: {
              id: {
                type: "string",
                description: "Short and unique within the plan, such as p1.",
              },
              title: { type: "string" },
              details: {
                type: "string",
                description: "What is changed, where, and how one sees that it is done.",
              },
            },
            required: ["id", "title", "details"],
            additionalProperties: false,
          },
        },
      },
      required: ["phases"],
      additionalProperties: false,
    },
  },
  coder: {
    description: "Implements the next phase of the plan, or mends what the last review or test found.",
    systemPrompt: `You implement the next phase of the plan that isn't done yet, and no other. If a review or a test since your last
turn found something, mend that first.

Write the test with the change, keep to the style of the code around you, and run what the project has to check
itself. Report the id of the phase that you completed. If you have finished all that were left in one go, that is
the id of the last one.`,
    schema: {
      type: "object",
      properties: {
        completedPhase: { type: "string", description: "The id of the phase as the plan has it." },
        filesChanged: { type: "array", items: { type: "string" } },
        summary: { type: "string" },
      },
      required: ["completedPhase", "filesChanged", "summary"],
      additionalProperties: false,
    },
  },
  reviewer: {
    description: "Reads the whole change, and says whether it can stay as it is.",
    systemPrompt: `You review the change as it stands in the working tree, against the task and the plan. Read the diff itself.
Reject only for what must be mended: a case that is missed or broken, no test, code that will be hard to keep. Each
issue names file and line, what is wrong, and what would be right.`,
    schema: {
      type: "object",
      properties: {
        status: { enum: ["approved", "rejected"] },
        issues: {
          type: "array",
          items: { type: "string" },
          description: "What must be mended; empty if it is approved.",
        },
      },
      required: ["status", "issues"],
      additionalProperties: false,
    },
  },
  tester: {
    description: "Runs tests, build and linters.",
    systemPrompt: `You verify the change: run the project's tests, its build and its linters, all of them, and mend nothing. Tell
failures with the command that shows them and the lines of its output that matter.`,
    schema: {
      type: "object",
      properties: { status: { enum: ["passed", "failed"] }, report: { type: "string" } },
      required: ["status", "report"],
      additionalProperties: false,
    },
  },
  committer: {
    description: "Commits the change on a branch.",
    systemPrompt: `You commit the change on a branch of its own, with a message that says why. Mend nothing: if git refuses, tell what
it said.`,
    schema: {
      type: "object",
      properties: {
        status: { enum: ["committed", "failed"] },
        branch: { type: "string" },
        commitSha: { type: "string" },
        error: { type: "string" },
      },
      required: ["status"],
      additionalProperties: false,
    },
  },
};

export const descriptor = {
  name: "develop",
  description: "Plans phases, implements them one by one, reviews, verifies and commits.",
  roles,
  graph: {
    edges: [
      { from: "__start__", to: "planner" },
      { from: "planner", to: "coder" },
      { from: "coder", to: "coder", condition: "phases left" },
      { from: "coder", to: "reviewer" },
      { from: "reviewer", to: "coder", condition: "rejected" },
      { from: "reviewer", to: "tester" },
      { from: "tester", to: "coder", condition: "failed" },
      { from: "tester", to: "committer" },
      { from: "committer", to: "__end__" },
    ],
  },
};

// The coder has had fewer turns than there are phases, and hasn't done the last one.
function phasesLeft(steps) {
  const phases = steps.findLast((step) => step.role === "planner").meta.phases;
  const turns = steps.filter((step) => step.role === "coder");
  return turns.length < phases.length && !turns.some((step) => step.meta.completedPhase === phases.at(-1).id);
}

function moderator({ steps }) {
  const last = steps.at(-1);
  switch (last?.role) {
    case undefined:
      return "planner";
    case "planner":
      return "coder";
    case "coder":
      return phasesLeft(steps) ? "coder" : "reviewer";
    case "reviewer":
      return last.meta.status === "rejected" ? "coder" : "tester";
    case "tester":
      return last.meta.status === "failed" ? "coder" : "committer";
    default:
      return "__end__";
  }
}

export async function* run(input, options) {
  return yield* options.createWorkflow({ roles, moderator })(input, options);
}
