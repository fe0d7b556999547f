// Times, in the words of the server.
export function refresh(isLost) {
  for (const node of document.querySelectorAll("time[datetime]")) {
    if (node.dataset.since && isLost) continue; // whether it still goes on isn't known
    const seconds = (Date.now() - Date.parse(node.dateTime)) / 1000;
    const text = node.dataset.since ? lasted(seconds) : ago(seconds, node.dateTime);
    if (!Number.isNaN(seconds) && node.textContent !== text) node.textContent = text;
  }
}

function ago(seconds, moment) {
  if (seconds < 1) return "now";
  let rest = Math.floor(seconds);
  for (const [size, unit] of [[60, "s"], [60, "m"], [24, "h"], [31, "d"]]) {
    if (rest < size) return `${rest}${unit} ago`;
    rest = Math.floor(rest / size);
  }
  return moment.slice(0, 10);
}

function lasted(seconds) {
  const whole = Math.max(0, Math.floor(seconds)), minutes = Math.floor(whole / 60);
  if (whole < 60) return `${whole}s`;
  return minutes < 60 ? `${minutes}m ${whole % 60}s` : `${Math.floor(minutes / 60)}h ${minutes % 60}m`;
}
