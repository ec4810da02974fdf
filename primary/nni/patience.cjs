// Loaded into NNI's manager before its own code (node --require), beside portal.cjs. What the manager writes waits for a
// file system that refuses for a while, as everything else of a run does (`storage.patience`). Else one line of its log
// that finds the disk full would end the manager, and with it the run.
'use strict';
const fs = require('node:fs');
const Module = require('node:module');
const { performance } = require('node:perf_hooks');

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1000;
const PASSING_IN_SQLITE = ['SQLITE_FULL', 'SQLITE_IOERR', 'SQLITE_CANTOPEN', 'SQLITE_READONLY'];

const { seconds, errors } = JSON.parse(process.env.AIPERF_NNI_PATIENCE ?? '{"seconds": 0, "errors": []}');
delete process.env.AIPERF_NNI_PATIENCE; // not for the processes that the manager starts
const passing = new Set([...errors, ...PASSING_IN_SQLITE]);
const later = setTimeout;

// Do `action(callback)` until it succeeds, its error is one that does not pass, or patience is over; then tell `done`.
function patiently(action, done) {
  const began = performance.now();
  let pause = FIRST_PAUSE_MS;
  const attempt = () =>
    action((error, ...results) => {
      if (!error || !passing.has(error.code) || performance.now() - began >= seconds * 1000) {
        done(error, ...results);
        return;
      }
      later(attempt, pause);
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    });
  attempt();
}

// --- Files and folders of trials.

for (const name of ['mkdir', 'open', 'writeFile']) {
  const original = fs.promises[name];
  fs.promises[name] = (...words) =>
    new Promise((resolve, reject) => {
      const once = (back) => original.apply(fs.promises, words).then((value) => back(null, value), back);
      patiently(once, (error, value) => (error ? reject(error) : resolve(value)));
    });
}

const open = fs.open; // for streams
fs.open = (...words) => {
  const done = words.pop();
  patiently((back) => open(...words, back), done);
};

// --- Lines of the log: lost, as those of AIPerf's own logs. NNI takes an error for the end of its log, and of itself.

const write = fs.write;
fs.write = (descriptor, data, ...rest) => {
  const done = rest.pop();
  const isLine = typeof data === 'string';
  write(descriptor, data, ...rest, (error, ...results) =>
    isLine && passing.has(error?.code) ? done(null, 0, data) : done(error, ...results),
  );
};

// --- The database: a statement that fails has changed nothing.

const load = Module._load;
Module._load = function (name, ...rest) {
  const loaded = load.call(this, name, ...rest);
  if (name === 'sqlite3') {
    Module._load = load;
    const run = loaded.Database.prototype.run;
    loaded.Database.prototype.run = function (...words) {
      const done = typeof words.at(-1) === 'function' ? words.pop() : () => {};
      const database = this;
      patiently(
        (back) => run.call(database, ...words, function (error) { back(error, this); }),
        (error, statement) => done.call(statement ?? database, error),
      );
      return this;
    };
  }
  return loaded;
};
