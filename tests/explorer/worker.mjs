// Run the worker of an explorer page outside a browser: requests in as JSON lines, answers out.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const html = readFileSync(process.argv[2], "utf8");
const block = (start) => {
  const from = html.indexOf(start) + start.length;
  return html.slice(from, html.indexOf("</script>", from));
};
let resolve = null;
const self = { postMessage: (message) => resolve(message) };
new Function("self", block('<script type="text/plain" id="worker">'))(self);
const ask = (message) => new Promise((done) => {
  resolve = done;
  self.onmessage({ data: message });
});
await ask({ ask: "open", settings: JSON.parse(block('<script type="application/json" id="page">')) });
let at = 0;
const part = '<script type="text/plain" class="weights">';
for (let from = html.indexOf(part); from >= 0; from = html.indexOf(part, from + 1)) {
  const text = html.slice(from + part.length, html.indexOf("</script>", from));
  await ask({ ask: "part", text, at });
  at += atob(text).length;
}
await ask({ ask: "close" });
const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await ask(JSON.parse(line));
  process.stdout.write(`${JSON.stringify(answer, plain)}\n`);
}
