/** Puts the fixtures' inputs to transformers.js and holds its answers to the goldens and to the verdicts that are on record. */

import { LogLevel, env } from "@huggingface/transformers";

import { Lacks, asked } from "./answers.mjs";
import { compare, tensorsDiffer } from "./compare.mjs";
import { MODELS, fixtures, layOut } from "./files.mjs";
import { REMEDIES } from "./remedies.mjs";
import { join } from "./split.mjs";
import { AGREES, DIFFERS, UNSUPPORTED, Verdicts } from "./verdicts.mjs";

env.allowRemoteModels = false;
env.fetch = (place) => Promise.reject(new Error(`nothing is fetched, and ${place} was asked for`));
env.localModelPath = MODELS;
env.useFSCache = false;
env.logLevel = LogLevel.NONE;

/** Every case of a fixture with what became of it. */
async function opinions(fixture) {
  const { dtype, second, added } = layOut(fixture);
  const task = (test) => test.task ?? fixture.task;
  const found = new Map();
  for (const name of new Set(fixture.cases.map(task))) {
    const { load, ask } = asked(fixture, name);
    const tests = fixture.cases.filter((test) => task(test) === name);
    let loaded;
    try {
      loaded = await load(fixture, dtype);
      if (second) await join(loaded.model, second);
    } catch (error) {
      const failed = !(error instanceof Lacks);
      tests.forEach((test) => found.set(test, { answer: UNSUPPORTED, how: saying(error), failed }));
      continue;
    }
    loaded.given = [...(loaded.given ?? []), ...added, ...(second ? ["a joined decoder"] : [])];
    for (const test of tests) found.set(test, await judged(loaded, ask, fixture, { reference: fixture.reference, ...test }));
    await loaded.dispose();
  }
  return fixture.cases.map((test) => ({ at: `${fixture.name}/${test.name}`, ...found.get(test) }));
}

/** Asks the library as it is, and where that differs with more and more remedies; as it is counts where they do not help. */
async function judged(loaded, ask, fixture, test) {
  const asItIs = { ...(await judgedOnce(loaded, ask, fixture, test)), remedies: loaded.given };
  const well = ({ answer, inputs, failed }) => answer !== DIFFERS && inputs !== DIFFERS && !failed;
  const undo = [];
  let found = asItIs;
  for (const remedy of REMEDIES) {
    if (well(found)) break;
    if (!(await remedy.applies(test, loaded, fixture))) continue;
    undo.unshift(await remedy.apply(loaded, fixture, test));
    found = { ...(await judgedOnce(loaded, ask, fixture, test)), remedies: [...found.remedies, remedy.name] };
  }
  undo.forEach((step) => step());
  return well(found) ? found : asItIs;
}

async function judgedOnce(loaded, ask, fixture, test) {
  const seen = watched([loaded.model, loaded.vocoder].flatMap((model) => Object.values(model?.sessions ?? {})));
  // The tensors are there once the case was asked, well or not.
  const made = (answer, how, failed = false) => ({ answer, how, failed, ...tensors(fixture, test, seen) });
  try {
    const { wrong, silent } = await compare(fixture, test, await ask(loaded, fixture, test));
    const more = wrong.length > 2 ? ` and ${wrong.length - 2} more` : "";
    if (wrong.length) return made(DIFFERS, wrong.slice(0, 2).join("; ") + more);
    return made(AGREES, silent.size ? `says nothing of ${[...silent].join(", ")}` : "");
  } catch (error) {
    return error instanceof Lacks ? made(UNSUPPORTED, error.message) : made(UNSUPPORTED, saying(error), true);
  }
}

/** The library's own words, without this machine's folders. */
const saying = (error) => error.message.replaceAll(MODELS, "").split("\n")[0].slice(0, 160);

/** The first tensor under each name that the graphs are given or give from now on. */
function watched(sessions) {
  const seen = new Map();
  const note = (tensors) => {
    for (const [name, { dims, data }] of Object.entries(tensors)) {
      if (!seen.has(name)) seen.set(name, { dims: [...dims], data: data.slice() });
    }
  };
  for (const session of sessions) {
    const { run } = Object.getPrototypeOf(session);
    session.run = async (feeds, ...more) => {
      note(feeds);
      const results = await run.call(session, feeds, ...more);
      note(results);
      return results;
    };
  }
  return seen;
}

/** Whether what the graphs were given first is what the Python library gave them. */
function tensors(fixture, test, seen) {
  if (!test.tensors) return {};
  const wrong = tensorsDiffer(fixture, test, seen);
  return { inputs: wrong.length ? DIFFERS : AGREES, apart: wrong.join("; ") };
}

/** One line of the table. */
function row({ at, answer, inputs, how, apart, remedies = [] }, mark) {
  const with_ = remedies.length ? `with ${remedies.join(", ")}` : "";
  const notes = [mark, with_, how, apart].filter(Boolean).join(" | ");
  return `${at.padEnd(34)} ${answer.padEnd(13)} ${(inputs ?? "-").padEnd(8)} ${notes}`.trimEnd();
}

async function main() {
  const names = process.argv.slice(2);
  const chosen = fixtures(names.filter((name) => name !== "--record"));
  const verdicts = new Verdicts();
  console.log(row({ at: "case", answer: "answer", inputs: "inputs", how: `transformers.js ${env.version}` }));
  const found = [];
  for (const fixture of chosen) {
    for (const one of await opinions(fixture)) {
      found.push(one);
      console.log(row(one, verdicts.mark(one)));
    }
  }
  const counts = [AGREES, DIFFERS, UNSUPPORTED].map((answer) => `${found.filter((one) => one.answer === answer).length} ${answer}`);
  console.log(`\n${found.length} cases: ${counts.join(", ")}`);
  const families = new Set(chosen.map((fixture) => fixture.name));
  if (names.includes("--record")) return verdicts.record(found, families, env.version);
  const fallen = verdicts.fallen(found, families);
  if (fallen.length) {
    console.log(`on record as agreeing, and no longer: ${fallen.join(", ")}`);
    process.exitCode = 1;
  }
}

main().catch((error) => {
  console.error(`second opinion: ${error.message}`);
  process.exitCode = 2;
});
