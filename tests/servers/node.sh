#!/bin/sh
# Node.js: a server and a client over HTTP and over bare sockets, checked by digest; again with its own use of io_uring asked for.
. "${0%/*}/lib.sh"
needs node
version node --version
cat >"$TMPDIR/both.js" <<'J'
const http = require('http'), net = require('net'), crypto = require('crypto');
const end = Date.now() + 1000 * Number(process.argv[2]);
const digest = (data) => crypto.createHash('sha256').update(data).digest('hex');
const fail = (why) => { console.log('FAILED', why); process.exit(1); };
const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
const server = http.createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part)).on('end', () => {
    const body = Buffer.concat(parts);
    response.setHeader('digest', digest(body));
    response.end(body);
  });
});
const post = (port, body) => new Promise((resolve) => {
  const request = http.request({ port, host: '127.0.0.1', method: 'POST', agent }, (response) => {
    const parts = [];
    response.on('data', (part) => parts.push(part)).on('end', () => {
      const back = digest(Buffer.concat(parts)), sent = digest(body);
      if (back !== sent || response.headers.digest !== sent) fail('an answer is another');
      resolve();
    });
  });
  request.on('error', fail);
  request.end(body);
});
const echo = net.createServer((socket) => { socket.pipe(socket); });
const stream = (port) => new Promise((resolve) => {
  const sent = crypto.randomBytes(4000000), parts = [];
  const socket = net.connect(port, '127.0.0.1', () => socket.end(sent));
  socket.on('data', (part) => parts.push(part)).on('error', fail);
  socket.on('end', () => { if (!sent.equals(Buffer.concat(parts))) fail('a stream is another'); resolve(); });
});
server.listen(0, '127.0.0.1', () => echo.listen(0, '127.0.0.1', async () => {
  let answers = 0, streams = 0;
  const one = async () => { while (Date.now() < end) { await post(server.address().port, crypto.randomBytes(1 + Math.floor(Math.random() * 60000))); answers++; } };
  const two = async () => { while (Date.now() < end) { await stream(echo.address().port); streams++; } };
  await Promise.all([...Array(8).keys()].map(one).concat([two(), two()]));
  console.log(answers, 'answers', streams, 'streams');
  process.exit(answers > 10 && streams > 2 ? 0 : 1);
}));
J
check "HTTP and streams" node "$TMPDIR/both.js" "$seconds"
# Not every version makes rings when it is asked to.
cat >"$TMPDIR/rings.js" <<'J'
const fs = require('fs');
const names = fs.readdirSync('/proc/self/fd').map((fd) => { try { return fs.readlinkSync('/proc/self/fd/' + fd); } catch { return ''; } });
process.exit(names.some((name) => name.includes('io_uring')) ? 0 : 1);
J
if env UV_USE_IO_URING=1 node "$TMPDIR/rings.js"; then
    check "the same with io_uring" env UV_USE_IO_URING=1 node "$TMPDIR/both.js" "$((seconds / 4))"
else
    skip "the same with io_uring" "this node makes no ring"
fi
