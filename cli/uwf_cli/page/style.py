"""How the page of a thread looks: in light and dark, narrow, and on paper."""

from __future__ import annotations

STYLE = """\
:root { color-scheme: light dark; --text: #1d2330; --dim: #5b6475; --line: #d8dde6; --ground: #ffffff;
  --raised: #f6f7f9; --link: #0b57d0; --good: #146c2e; --good-ground: #e3f4e6; --bad: #a4262c;
  --bad-ground: #fbe9e9; --warn: #7a4d00; --warn-ground: #fff3d6; --mark: #3f6ad8; }
@media (prefers-color-scheme: dark) { :root { --text: #e3e7ef; --dim: #9aa4b5; --line: #343b49; --ground: #14171d;
  --raised: #1d2129; --link: #8ab4f8; --good: #7fd592; --good-ground: #17301d; --bad: #f29b9b;
  --bad-ground: #3a1d1f; --warn: #f3c46b; --warn-ground: #362a10; --mark: #8aa9ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); overflow-wrap: anywhere;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .7rem; }
h3 { font-size: 1.05rem; margin: 0; }
h4, h5, h6 { font-size: 1rem; margin: 1rem 0 .3rem; }
a { color: var(--link); }
p, ul, ol { margin: .5rem 0; }
.dim, .address, .meta { color: var(--dim); }
.address, .meta { font-size: .875rem; }
.meta { margin: .25rem 0 .6rem; }
code, pre { font: .875rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { overflow-wrap: anywhere; }
pre { background: var(--raised); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem;
  margin: .5rem 0; overflow-x: auto; max-width: 100%; }
pre code { overflow-wrap: normal; white-space: pre; }
.scrolls { overflow-x: auto; max-width: 100%; }
.as-is { white-space: pre-wrap; }
table { border-collapse: collapse; font-size: .94rem; margin: .4rem 0; }
th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
thead th, .values th { background: var(--raised); font-weight: 600; overflow-wrap: normal; }
td { min-width: 4rem; }
td ul { margin: 0; padding-left: 1.1rem; }
td table { margin: 0; }
.is-none { color: var(--dim); font-style: italic; }
.is-yes { color: var(--good); font-weight: 600; }
.is-no { color: var(--bad); font-weight: 600; }
.badge { display: inline-block; border-radius: 1rem; padding: .05rem .65rem; font-size: .875rem; font-weight: 600;
  background: var(--raised); border: 1px solid var(--line); }
.completed { color: var(--good); background: var(--good-ground); border-color: transparent; }
.failed, .corrupt { color: var(--bad); background: var(--bad-ground); border-color: transparent; }
.waiting, .paused, .made-up { color: var(--warn); background: var(--warn-ground); border-color: transparent; }
.notice { border-left: 4px solid var(--warn); background: var(--warn-ground); padding: .6rem .9rem;
  border-radius: 0 6px 6px 0; margin: 1rem 0; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0; font-size: .94rem; }
.facts dt { color: var(--dim); } .facts dd { margin: 0; }
.steps { list-style: none; padding: 0; margin: 0; }
.steps li { display: flex; gap: .6rem; padding: .35rem 0; border-bottom: 1px solid var(--line); flex-wrap: wrap; }
.steps li > :first-child { min-width: 1.6rem; text-align: right; color: var(--dim); }
.steps li > :last-child { margin-left: auto; }
article { border: 1px solid var(--line); border-radius: 8px; padding: .9rem 1.1rem; margin: 1rem 0; }
article article { margin: .6rem 0; }
.head { display: flex; gap: .6rem; align-items: baseline; flex-wrap: wrap; }
.task { border-left: 4px solid var(--mark); padding: .1rem 0 .1rem 1rem; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--dim); }
details > :not(summary) { margin-left: 1rem; }
.turn { border-left: 3px solid var(--line); padding-left: .8rem; margin: .7rem 0; }
.assistant { border-color: var(--mark); }
.attempt > summary { color: var(--bad); }
.graph { display: block; font-size: 13px; max-width: none; height: auto; }
.graph text { fill: var(--text); } .graph .label { fill: var(--dim); font-size: 12px;
  paint-order: stroke; stroke: var(--ground); stroke-width: 4px; }
.node { fill: var(--raised); stroke: var(--line); } .node.was { stroke: var(--mark); stroke-width: 1.6; }
.way { fill: none; stroke: var(--dim); stroke-width: 1.1; opacity: .7; stroke-dasharray: 4 3; }
.way.was { stroke: var(--mark); stroke-width: 1.8; opacity: 1; stroke-dasharray: none; }
.tip { fill: var(--dim); } .tip-was { fill: var(--mark); }
img { max-width: 100%; }
footer { margin-top: 2.5rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: .875rem;
  color: var(--dim); }
@media (max-width: 34rem) { main { padding: 1.2rem .9rem 2rem; } h1 { font-size: 1.4rem; }
  .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin-bottom: .5rem; }
  article { padding: .7rem .8rem; } .steps li > :last-child { margin-left: 2.2rem; flex-basis: 100%; } }
@media print { :root { --ground: #fff; --text: #000; --raised: #f4f4f4; --line: #bbb; --dim: #444; --link: #000; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  h2, h3, .head { break-after: avoid; } tr, .notice, svg { break-inside: avoid; }
  pre, pre code { white-space: pre-wrap; overflow-wrap: anywhere; } .scrolls { overflow: visible; }
  details::details-content { content-visibility: visible; block-size: auto; opacity: 1; } }
"""
