// Lets durations and costs count on while a page stays open. Says the same as portal/web/dates.py
// (`lasting`) and portal/web/money.py (`dollars`, `short_dollars`).
const UNITS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];
const HOUR_MS = 3600000;
const NANO = 1e9;
const CENT = 1e7;
const DECIMALS = [2, 3, 4, 6, 9];

function lasting(seconds) {
  if (seconds > 0 && seconds < 1) return "< 1 s";
  let left = Math.max(0, Math.trunc(seconds));
  const parts = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count || (unit === "s" && parts.length === 0)) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

function dollars(nano) {
  const amount = nano / NANO;
  const few =
    DECIMALS.find((n) => Math.abs(Number(amount.toFixed(n)) - amount) * 100 <= amount) ?? 9;
  return `$${amount.toLocaleString("en-US", { minimumFractionDigits: few, maximumFractionDigits: few })}`;
}

// What is less than a cent is written as that; the exact amount stands where one points. In a list
// of such amounts each is written in digits.
function putAmount(element, nano) {
  const isTiny = nano > 0 && nano < CENT && !("digits" in element.dataset);
  put(element, isTiny ? "< $0.01" : dollars(nano));
  if (isTiny) element.title = dollars(Math.trunc(nano));
  else element.removeAttribute("title");
}

function put(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

function count() {
  const now = Date.now();
  for (const element of document.querySelectorAll("[data-counts-from]")) {
    put(element, lasting((now - Date.parse(element.dataset.countsFrom)) / 1000));
  }
  for (const element of document.querySelectorAll("[data-cost]")) {
    const { cost, rate, costAt } = element.dataset;
    putAmount(element, Number(cost) + (Number(rate) * Math.max(0, now - Date.parse(costAt))) / HOUR_MS);
  }
}

setInterval(() => document.hidden || count(), 1000);
document.addEventListener("visibilitychange", () => document.hidden || count());
