// Places nodes and ways, beside the page's own thread: a graph of some hundred roles takes a while.

import { Graph, layout } from "./dagre/dagre.js";

onmessage = ({ data: { nodes, ways, direction } }) => {
  const graph = new Graph();
  graph.setGraph({ rankdir: direction, nodesep: 36, ranksep: 26, edgesep: 18, marginx: 10, marginy: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id, width, height } of nodes) graph.setNode(id, { width, height });
  for (const { source, target, width, height } of ways) {
    graph.setEdge(source, target, { width, height, labelpos: "c" });
  }
  layout(graph);
  const { width, height } = graph.graph();
  postMessage({
    width,
    height,
    nodes: nodes.map(({ id }) => graph.node(id)),
    ways: ways.map(({ source, target }) => graph.edge(source, target)),
  });
};
