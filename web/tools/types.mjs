// Writes src/api/types.ts: the types of the API, from its OpenAPI document.
//
//     node tools/types.mjs            writes the file
//     import { typesOf }              gives its text, for the test that holds the committed file against it
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const DOCUMENT = new URL("../../docs/openapi.json", import.meta.url);
const FILE = fileURLToPath(new URL("../src/api/types.ts", import.meta.url));

const HEAD = `/**
 * The types of \`/api/v1\`, made of docs/openapi.json by tools/types.mjs: change crate \`api\`, then run \`make web\`.
 * Sizes are bytes, times milliseconds since 1970 (\`_ms\`), durations microseconds (\`_us\`).
 */
`;

/** \`spec.Lun\` becomes \`LunSpec\`. */
const nameOf = (name) => name.split(".").reverse().map((part) => part[0].toUpperCase() + part.slice(1)).join("");
const refersTo = ({ $ref }) => nameOf($ref.split("/").at(-1));
const keyOf = (key) => (/^[A-Za-z_]\w*$/.test(key) ? key : JSON.stringify(key));

function comment(text, indent) {
  if (!text) return "";
  const lines = text.trim().split("\n").map((line) => line.trim());
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} *${line && ` ${line}`}\n`).join("")}${indent} */\n`;
}

function fields(schema, indent) {
  const required = new Set(schema.required);
  return Object.entries(schema.properties ?? {}).map(([key, each]) => {
    const isOptional = !required.has(key);
    // An absent field is absent and never null.
    const type = typeOf(each, `${indent}  `, isOptional);
    return `${comment(each.description, `${indent}  `)}${indent}  ${keyOf(key)}${isOptional ? "?" : ""}: ${type};\n`;
  }).join("");
}

const SIMPLE = { string: "string", boolean: "boolean", integer: "number", number: "number", null: "null" };

/** A schema as a type. \`withoutNull\`: for a field that is left out instead. */
function typeOf(schema, indent = "", withoutNull = false) {
  if (schema.$ref) return refersTo(schema);
  const several = schema.oneOf ?? schema.anyOf;
  if (several) {
    const types = several.filter(({ type }) => !(withoutNull && type === "null")).map((each) => typeOf(each, indent));
    return [...new Set(types)].join(" | ");
  }
  if (schema.allOf?.length === 1) return typeOf(schema.allOf[0], indent);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => !(withoutNull && type === "null"));
    return types.map((type) => typeOf({ ...schema, type }, indent)).join(" | ");
  }
  if (schema.type === "array") {
    const item = typeOf(schema.items, indent);
    return item.includes(" ") ? `(${item})[]` : `${item}[]`;
  }
  if (schema.properties) return `{\n${fields(schema, indent)}${indent}}`;
  const simple = SIMPLE[schema.type];
  if (!simple) throw new Error(`no type for ${JSON.stringify(schema)}`);
  return simple;
}

function declaration([name, schema]) {
  const isInterface = schema.type === "object" && schema.properties;
  const own = isInterface ? `export interface ${nameOf(name)} ${typeOf(schema)}` : `export type ${nameOf(name)} = ${typeOf(schema)};`;
  return `${comment(schema.description, "")}${own}\n`;
}

/** The text of the file. */
export function typesOf(document = JSON.parse(readFileSync(DOCUMENT, "utf8"))) {
  const schemas = Object.entries(document.components.schemas).sort(([a], [b]) => (nameOf(a) < nameOf(b) ? -1 : 1));
  const kinds = document["x-store-kinds"].map((kind) => `  ${JSON.stringify(kind)},\n`).join("");
  const stores = `/** The kinds of stores: how a STORE is written, and which options it takes. */\nexport const STORE_KINDS = [\n${kinds}] as const;\n`;
  return [HEAD, ...schemas.map(declaration), stores].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(FILE, typesOf());
