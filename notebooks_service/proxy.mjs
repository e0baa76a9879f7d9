// The notebooks' proxy: configurable-http-proxy that answers under its own addresses alone.
//
// Started by portal.config.notebooks. Hosts are compared with their port, before any route is looked
// up, so that every server behind it is covered, whatever user code it runs.

import ConfigurableProxy from "configurable-http-proxy/lib/configproxy.js";
import { defaultLogger } from "configurable-http-proxy/lib/log.js";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    ip: { type: "string" },
    port: { type: "string" },
    "api-ip": { type: "string" },
    "api-port": { type: "string" },
    "default-target": { type: "string" },
    "error-target": { type: "string" },
    // The notebooks' address, for messages.
    url: { type: "string" },
    // Servers in pools are reached by Unix sockets in this folder.
    "relay-folder": { type: "string" },
    // A host with its port, as often as needed; with a dot in front any name below it.
    host: { type: "string", multiple: true },
  },
});

const AUTHORITY = /^(\[[0-9a-f:.]{2,45}\]|[0-9a-z._-]{1,254}?)\.?(:[0-9]{1,5})?$/;

function hostsOf(req) {
  const found = [];
  for (let i = 0; i < req.rawHeaders.length; i += 2) {
    if (req.rawHeaders[i].toLowerCase() === "host") found.push(req.rawHeaders[i + 1]);
  }
  return found;
}

// Returns null for a request that names one of the addresses in `allowed`, else the refusal.
function refusalOf(req, allowed) {
  const hosts = hostsOf(req);
  const match = hosts.length === 1 ? AUTHORITY.exec(hosts[0].toLowerCase()) : null;
  if (match === null || !req.url.startsWith("/")) {
    return { status: 400, detail: "The request needs one Host header and a path." };
  }
  const name = match[1] + (match[2] ?? "");
  if (allowed.some((one) => (one.startsWith(".") ? name.endsWith(one) : name === one))) return null;
  return {
    status: 421,
    detail: `Notebooks are not served as ${name}. Their address is ${values.url}.`,
  };
}

const TITLES = { 400: "Bad Request", 421: "Misdirected Request" };

const RELAYED = /^([0-9a-f]{32})\.relay\.invalid$/;

class NotebooksProxy extends ConfigurableProxy {
  proxyOptsForTarget(target) {
    const options = super.proxyOptsForTarget(target);
    const match = RELAYED.exec(target.hostname);
    if (match !== null) {
      delete options.agent;
      options.target.socketPath = `${values["relay-folder"]}/${match[1]}.sock`;
    }
    return options;
  }

  handleProxyWeb(req, res) {
    return refuse(req, res, values.host) ? undefined : super.handleProxyWeb(req, res);
  }

  handleProxyWs(req, socket, head) {
    const refusal = refusalOf(req, values.host);
    if (refusal === null) return super.handleProxyWs(req, socket, head);
    socket.end(
      `HTTP/1.1 ${refusal.status} ${TITLES[refusal.status]}\r\n` +
        `Content-Type: text/plain; charset=utf-8\r\n` +
        `Content-Length: ${refusal.detail.length}\r\nConnection: close\r\n\r\n${refusal.detail}`
    );
    return undefined;
  }

  handleApiRequest(req, res) {
    const own = [`${values["api-ip"]}:${values["api-port"]}`];
    return refuse(req, res, own) ? undefined : super.handleApiRequest(req, res);
  }
}

function refuse(req, res, allowed) {
  const refusal = refusalOf(req, allowed);
  if (refusal === null) return false;
  res.writeHead(refusal.status, {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    Connection: "close",
  });
  res.end(refusal.detail);
  return true;
}

if (!process.env.CONFIGPROXY_AUTH_TOKEN) {
  process.stderr.write("the notebooks' proxy needs CONFIGPROXY_AUTH_TOKEN\n");
  process.exit(2);
}
const log = defaultLogger({ level: "warn" });
process.on("uncaughtException", (error) => log.error(error.stack ?? String(error)));
const proxy = new NotebooksProxy({
  log,
  authToken: process.env.CONFIGPROXY_AUTH_TOKEN,
  defaultTarget: values["default-target"],
  errorTarget: values["error-target"],
  xfwd: true,
  prependPath: true,
  includePrefix: true,
});
for (const server of [proxy.proxyServer, proxy.apiServer]) {
  // Slow heads end after at most 12 seconds; Node's defaults are 60, and a look every 30.
  server.headersTimeout = 10_000;
  server.connectionsCheckingInterval = 2_000;
}
proxy.apiServer.maxConnections = 256;
proxy.proxyServer.listen(Number(values.port), values.ip);
proxy.apiServer.listen(Number(values["api-port"]), values["api-ip"]);
