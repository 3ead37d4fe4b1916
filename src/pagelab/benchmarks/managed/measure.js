// Functions shared by the JavaScript benchmarks.
"use strict";
const fs = require("fs");

// Runs `work` and reports its mean time an operation, in ns, to whoever asked (PAGELAB_MEASURE_FD).
exports.measured = (name, operations, work) => {
  const start = process.hrtime.bigint();
  const result = work();
  exports.report(name, Number(process.hrtime.bigint() - start) / operations);
  return result;
};

exports.report = (name, value) => {
  const descriptor = process.env.PAGELAB_MEASURE_FD;
  if (descriptor) fs.writeSync(Number(descriptor), JSON.stringify({ name, value, unit: "ns" }) + "\n");
};

// Says whether the results were proved.
exports.conclude = (right, checked) => {
  if (right !== checked) {
    console.error(`${right} of ${checked} results are right: memory or code is broken`);
    process.exitCode = 1;
  } else console.log(`${checked} results verified`);
};

// The word after --name.
exports.option = (name, fallback, known) => {
  const place = process.argv.indexOf(`--${name}`);
  const value = place < 0 ? fallback : process.argv[place + 1];
  if (known && !known.includes(value)) {
    console.error(`--${name} ${value}: allowed: ${known.join(", ")}`);
    process.exit(2);
  }
  return typeof fallback === "number" ? Number(value) : value;
};
