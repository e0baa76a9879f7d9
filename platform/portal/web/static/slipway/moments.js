// Keeps relative times true while a page stays open. Says the same words as portal/web/dates.py.
const STEPS = [
  [60, 1, "second"],
  [3600, 60, "minute"],
  [86400, 3600, "hour"],
  [30 * 86400, 86400, "day"],
  [365 * 86400, 30 * 86400, "month"],
];
const YEAR_S = 365 * 86400;
const NOW_S = 10;
const EVERY_MS = 15000;

function inWords(moment, now) {
  const awayS = Math.trunc((moment - now) / 1000);
  const sizeS = Math.abs(awayS);
  if (sizeS < NOW_S) return "just now";
  const step = STEPS.find(([limit]) => sizeS < limit);
  const [unitS, unit] = step ? [step[1], step[2]] : [YEAR_S, "year"];
  const count = awayS > 0 ? Math.round(sizeS / unitS) : Math.floor(sizeS / unitS);
  const words = `${count} ${unit}${count === 1 ? "" : "s"}`;
  return awayS > 0 ? `in ${words}` : `${words} ago`;
}

function refresh() {
  const now = Date.now();
  for (const element of document.querySelectorAll("time[data-relative]")) {
    const words = inWords(Date.parse(element.dateTime), now);
    if (element.textContent !== words) element.textContent = words;
  }
}

setInterval(refresh, EVERY_MS);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
