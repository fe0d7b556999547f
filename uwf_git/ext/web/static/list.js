// The list of threads: checks all rows, loads older ones when one scrolls to its end, and marks threads that have moved
// since this browser last opened them.

const OPENED = "uwf.opened"; // in the browser's own storage: milliseconds by thread, and since when it counts
const MOST = 2000; // threads that it knows

let opened = read();

function read() {
  try {
    return JSON.parse(localStorage.getItem(OPENED)) ?? { since: Date.now(), threads: {} };
  } catch {
    return { since: Date.now(), threads: {} }; // nothing is kept, or by something else
  }
}

function write() {
  const newest = Object.entries(opened.threads).sort((one, other) => other[1] - one[1]).slice(0, MOST);
  opened.threads = Object.fromEntries(newest);
  try {
    localStorage.setItem(OPENED, JSON.stringify(opened));
  } catch {
    // This browser keeps nothing.
  }
}

const shown = () => document.querySelector("#content [data-thread]")?.dataset.thread;

// A thread that is looked at is read as far as it is.
let seen;
function see() {
  const thread = shown();
  seen = thread;
  if (!thread || document.hidden) return;
  opened = read();
  opened.threads[thread] = Date.now();
  write();
}

function mark() {
  for (const row of document.querySelectorAll(".board tr[id]")) {
    const moved = Date.parse(row.querySelector(".age time")?.dateTime);
    const isUnread = moved > (opened.threads[row.id.slice(2)] ?? opened.since);
    if (row.classList.contains("unread") === isUnread) continue;
    row.classList.toggle("unread", isUnread);
    const link = row.querySelector(".task a");
    if (isUnread) link.setAttribute("aria-description", "has moved since you opened it");
    else link.removeAttribute("aria-description");
  }
}

// The box in the head of the list checks all rows that are shown, and shows whether all are.
const boxes = () => [...document.querySelectorAll(".board tbody input[type=checkbox]")];
function follow() {
  const all = document.querySelector(".board .check-all");
  const list = boxes();
  if (all) all.checked = list.length > 0 && list.every((box) => box.checked);
}

document.addEventListener("change", ({ target }) => {
  if (target.matches(".board .check-all")) for (const box of boxes()) box.checked = target.checked;
  else if (target.matches(".board tbody input")) follow();
});

const end = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    end.unobserve(target);
    target.click();
  }
}, { rootMargin: "400px" });

function look() {
  see();
  mark();
  follow();
  end.disconnect();
  const more = document.querySelector(".board ~ p > a.more");
  if (more) end.observe(more);
}

let due = 0;
function soon() {
  if (shown() !== seen) see();
  due ||= setTimeout(() => {
    due = 0;
    look();
  }, 200);
}

write(); // since when it counts
new MutationObserver(soon).observe(document.body, { childList: true, subtree: true, attributeFilter: ["class", "datetime"] });
document.addEventListener("visibilitychange", soon);
look();
