// Loaded into NNI's manager before its own code (node --require), whose web server would listen on all interfaces.
'use strict';
const net = require('node:net');

const host = process.env.AIPERF_NNI_HOST;
// Not for the processes that the manager starts.
delete process.env.NODE_OPTIONS;
delete process.env.AIPERF_NNI_HOST;

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...words) {
  if (host && typeof words[0] === 'number' && typeof words[1] !== 'string') {
    words.splice(1, 0, host);
  }
  return listen.apply(this, words);
};
