// Loaded into NNI's manager before its own code (node --require). NNI's web server asks nobody for a password and does
// what it is told; this file decides who reaches it, and for which requests. It also lets NNI wait for its tuner, and
// outlive its terminal.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const os = require('node:os');
const util = require('node:util');

// Not for the processes that the manager starts. They learn that it is guarded, and by which name their tuner asks for
// its channel: the tuner of a manager that was killed finds the next one at the same port, and would take its place.
delete process.env.NODE_OPTIONS;
const NAME = crypto.randomBytes(16).toString('hex');
process.env.AIPERF_NNI_GUARDED = NAME;

process.on('SIGHUP', () => {}); // A terminal that is closed, or a login that is dropped, ends nothing.

const OWNER = process.geteuid();
const LOOKS = 3; // A table that changes while it is read may miss a row.
const FAREWELL_MS = 1000;
const NNI_TUNER_MS = 10000;
const TUNER_MS = 60000;
const NO_SUCH_ADDRESS = ['EADDRNOTAVAIL', 'EAFNOSUPPORT']; // a node without IPv6

// --- Patience: NNI gives its tuner 10 s to connect, in which a busy machine does not start Python.

const later = global.setTimeout;
global.setTimeout = function (callback, ms, ...rest) {
  if (ms === NNI_TUNER_MS && new Error().stack.includes('tuner_command_channel')) {
    return later(callback, TUNER_MS, ...rest).unref();
  }
  return later(callback, ms, ...rest);
};
global.setTimeout[util.promisify.custom] = later[util.promisify.custom];

// --- Addresses: both of the loopback interface. Clients say `localhost`, and the other address would be free for a
// --- server of another user.

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...words) {
  const port = typeof words[0] === 'object' && words[0] !== null ? words[0].port : words[0];
  if (typeof port !== 'number') {
    return listen.apply(this, words);
  }
  const twin = net.createServer({ allowHalfOpen: true }, (socket) => this.emit('connection', socket));
  const begin = () => listen.call(this, { port, host: '127.0.0.1' });
  twin.once('listening', begin);
  twin.once('error', (error) => (NO_SUCH_ADDRESS.includes(error.code) ? begin() : this.emit('error', error)));
  listen.call(twin, { port, host: '::1', ipv6Only: true });
  const close = this.close;
  this.close = (...rest) => {
    twin.close();
    return close.apply(this, rest);
  };
  return this;
};

// --- Users: the kernel lists the other end of a connection of this machine, too, with its user.

function words(bytes) {
  const text = [];
  for (let start = 0; start < bytes.length; start += 4) {
    const word = bytes.slice(start, start + 4);
    text.push(...(os.endianness() === 'LE' ? word.reverse() : word));
  }
  return text.map((byte) => byte.toString(16).padStart(2, '0')).join('').toUpperCase();
}

// An end of a connection as the tables may show it: IPv4 also as seen by a socket of IPv6.
function shown(address, port) {
  const end = `:${port.toString(16).padStart(4, '0').toUpperCase()}`;
  if (address === '::1') {
    return [words([...Array(15).fill(0), 1]) + end];
  }
  const bytes = address.replace('::ffff:', '').split('.').map(Number);
  return [words(bytes) + end, words([...Array(10).fill(0), 255, 255, ...bytes]) + end];
}

function readTable(path) {
  try {
    return fs.readFileSync(path, 'latin1').split('\n');
  } catch {
    return [];
  }
}

// The user of the process at the other end; undefined if there is none on this machine any more.
function peerUser(socket) {
  if (!socket.remoteAddress) {
    return undefined;
  }
  const near = shown(socket.remoteAddress, socket.remotePort);
  const far = shown(socket.localAddress, socket.localPort);
  for (let look = 0; look < LOOKS; look += 1) {
    for (const row of [...readTable('/proc/net/tcp'), ...readTable('/proc/net/tcp6')]) {
      const [, local, remote, , , , , user, , inode] = row.trim().split(/\s+/);
      if (near.includes(local) && far.includes(remote)) {
        // A socket that its process has closed has no inode, and is shown as root's.
        return inode === '0' ? undefined : Number(user);
      }
    }
  }
  return undefined;
}

// --- Requests: from the portal's own pages, and only those that a run needs.

// Names by which a browser reaches the portal, also through a tunnel with another port. Any other one was made to lead
// to the loopback interface (DNS rebinding).
const HOSTS = /^(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?$/;

const WRITES = [
  /^POST \/api\/v1\/nni\/experiment$/, // the start
  /^DELETE \/api\/v1\/nni\/experiment$/, // the end
  /^PUT \/api\/v1\/nni\/experiment\?update_type=(MAX_EXEC_DURATION|TRIAL_CONCURRENCY|MAX_TRIAL_NUM)$/,
  /^DELETE \/api\/v1\/nni\/trial-jobs\/[\w-]+$/,
  /^PUT \/env\/[\w-]+\/[\w-]+$/, // reports of trials
];

function isNeeded(method, url) {
  if (method !== 'GET' && method !== 'HEAD') {
    return WRITES.some((write) => write.test(`${method} ${url}`));
  }
  const path = url.split('?')[0];
  let decoded;
  try {
    decoded = decodeURIComponent(path);
  } catch {
    return false;
  }
  const hidden = /%2f|%5c|%00/i.test(path); // part of one name for NNI's router, a separator for its file system
  const upwards = decoded.split(/[/\\]/).includes('..');
  const foreign = /^\/netron(\/|$)/i.test(decoded); // scripts of another site, with the rights of the portal's pages
  return path.startsWith('/') && !hidden && !upwards && !foreign;
}

// A link to the portal may be on any page; what else comes from other pages is an attack.
function isFromOtherPage(headers) {
  const site = headers['sec-fetch-site'];
  const isLink = headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
  const isOwn = site === undefined || site === 'same-origin' || site === 'none';
  return (headers.origin !== undefined && headers.origin !== `http://${headers.host}`) || !(isOwn || isLink);
}

function isFromOtherTuner(url) {
  const [path, query] = url.split('?');
  return /^\/tuner(\/|$)/i.test(decodeURIComponent(path)) && query !== `manager=${NAME}`;
}

function refusal(request) {
  if (!HOSTS.test(request.headers.host ?? '')) {
    return 'the portal answers at 127.0.0.1 and localhost only';
  }
  if (isFromOtherPage(request.headers)) {
    return 'the request comes from a page of another origin';
  }
  if (!isNeeded(request.method, request.url)) {
    return 'runs of AIPerf do not need this request';
  }
  return isFromOtherTuner(request.url) ? 'the channel is for the tuner that this manager has started' : undefined;
}

function forbidden(reason) {
  const body = `${reason}\n`;
  const head = 'HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: ';
  return `${head}${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

// Answer and hang up, after time for the answer to be read: unread data would take it back.
function refuse(socket, reason) {
  socket.on('error', () => {});
  socket.end(forbidden(reason));
  socket.resume();
  setTimeout(() => socket.destroy(), FAREWELL_MS).unref();
}

const REQUESTS = ['request', 'checkContinue', 'checkExpectation', 'upgrade', 'connect'];

const emit = http.Server.prototype.emit;
http.Server.prototype.emit = function (event, ...things) {
  if (event === 'connection' && peerUser(things[0]) !== OWNER) {
    refuse(things[0], 'the portal answers the owner of the run only');
    return true;
  }
  const reason = REQUESTS.includes(event) ? refusal(things[0]) : undefined;
  if (reason !== undefined) {
    refuse(things[0].socket, reason);
    return true;
  }
  if (event === 'request') {
    things[1].setHeader('X-Frame-Options', 'DENY');
  }
  return emit.call(this, event, ...things);
};
