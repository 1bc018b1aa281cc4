/** What is on record: each case's verdict, and why where the library differs or cannot be asked. */

import fs from "node:fs";

const FILE = process.env.SECOND_OPINION_VERDICTS;

export const AGREES = "agrees";
export const DIFFERS = "differs";
export const UNSUPPORTED = "not supported";

export class Verdicts {
  constructor() {
    const { reasons, cases } = fs.existsSync(FILE) ? JSON.parse(fs.readFileSync(FILE, "utf8")) : { reasons: {}, cases: {} };
    Object.assign(this, { reasons, cases });
  }

  /** What is to be said of a case that is not as it is on record. */
  mark(found) {
    const was = this.cases[found.at];
    if (!was) return "new";
    if (this.#lost(found)) return "NO LONGER AGREES";
    return was.answer === found.answer && was.inputs === found.inputs ? "" : "changed";
  }

  /** It agreed, and does so no more or only with more remedies. */
  #lost({ at, answer, inputs, remedies = [] }) {
    const was = this.cases[at] ?? {};
    const more = remedies.some((name) => !was.with?.includes(name));
    return (was.answer === AGREES && (answer !== AGREES || more)) || (was.inputs === AGREES && (inputs !== AGREES || more));
  }

  /** The names of those, and of cases on record that there are no more. */
  fallen(found, families) {
    const here = new Set(found.map(({ at }) => at));
    const gone = Object.keys(this.cases).filter((at) => families.has(at.split("/")[0]) && !here.has(at));
    return [...found.filter((one) => this.#lost(one)).map(({ at }) => at), ...gone];
  }

  /** Writes what was found, keeps what is known of cases that stay as they were, and says which lack a reason. */
  record(found, families, version) {
    const others = Object.entries(this.cases).filter(([at]) => !families.has(at.split("/")[0]));
    const cases = new Map(others);
    for (const { at, answer, inputs, remedies = [], how, failed } of found) {
      // What a case requests in vain is its own reason; why the library differs or fails is for people to state.
      const lacks = answer === UNSUPPORTED && !failed ? how : undefined;
      const kept = this.cases[at]?.answer === answer ? this.cases[at].why : undefined;
      const why = answer === AGREES ? undefined : (lacks ?? kept);
      cases.set(at, { answer, inputs, with: remedies.length ? remedies : undefined, why });
    }
    const sorted = [...cases].sort(([left], [right]) => (left < right ? -1 : 1));
    const lines = (entries) => entries.map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)}`).join(",\n");
    const text = [
      "{", `  "library": "transformers.js ${version}",`,
      '  "reasons": {', lines(Object.entries(this.reasons)), "  },",
      '  "cases": {', lines(sorted), "  }", "}", "",
    ];
    fs.writeFileSync(FILE, text.join("\n"));
    const named = sorted.flatMap(([at, { answer, why, with: remedies = [] }]) => [
      ...(answer === AGREES ? [] : [[at, why]]), ...remedies.map((name) => [at, name]),
    ]);
    const bare = named.filter(([, why]) => !this.reasons[why]).map(([at, why]) => `${at}: ${why ?? "?"}`);
    if (bare.length) console.log(`without a reason:\n${bare.join("\n")}`);
  }
}
