// Reads an OpenAPI 3.1 document into plain operations, with references followed.
// Only references inside the document are followed; nothing is ever fetched for one.

const METHODS = ["get", "post", "put", "patch", "delete", "head", "options"];

/** Follows `$ref` and gives the first name on the way. `passed` ends circles: each reference counts once. */
export function follow(api, node, passed = new Set()) {
  let name;
  while (typeof node?.$ref === "string") {
    const { $ref, ...beside } = node;
    name ??= $ref.split("/").at(-1);
    node = passed.has($ref) ? beside : { ...lookUp(api, $ref), ...beside };
    passed.add($ref);
  }
  return { name, node: node ?? {} };
}

function lookUp(api, reference) {
  if (!reference.startsWith("#/")) return {};
  const steps = reference.slice(2).split("/").map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  return steps.reduce((node, step) => (Object.hasOwn(node ?? {}, step) ? node[step] : undefined), api);
}

/** Operations by tag: first the tags that the document describes, then the others as they come. */
export function groups(api) {
  const found = new Map((api.tags ?? []).map((tag) => [tag.name, { ...tag, operations: [] }]));
  for (const operation of operations(api)) {
    const name = operation.tag;
    if (!found.has(name)) found.set(name, { name, operations: [] });
    found.get(name).operations.push(operation);
  }
  return [...found.values()].filter((group) => group.operations.length > 0);
}

function operations(api) {
  return Object.entries(api.paths).flatMap(([path, item]) => {
    const present = METHODS.filter((method) => item[method]);
    return present.map((method) => operation(api, path, method, item));
  });
}

function operation(api, path, method, item) {
  const said = item[method];
  const body = said.requestBody && follow(api, said.requestBody).node;
  return {
    path,
    method,
    id: said.operationId ?? `${method} ${path}`,
    tag: said.tags?.[0] ?? "other",
    summary: said.summary ?? "",
    description: said.description ?? "",
    deprecated: said.deprecated === true,
    needsKey: (said.security ?? api.security ?? []).some((way) => Object.keys(way).length > 0),
    parameters: parameters(api, item.parameters, said.parameters),
    body: body && { ...body, media: Object.entries(body.content ?? {}) },
    responses: Object.entries(said.responses ?? {}).map(([status, response]) => {
      const { node } = follow(api, response);
      return { ...node, status, media: Object.entries(node.content ?? {}) };
    }),
  };
}

/** An operation's own parameter stands in for one of its path that has the same name and place. */
function parameters(api, ofPath = [], ofOperation = []) {
  const all = [...ofPath, ...ofOperation].map((parameter) => follow(api, parameter).node);
  return [...new Map(all.map((parameter) => [`${parameter.in} ${parameter.name}`, parameter])).values()];
}

/** The media type that an example is made for: JSON where there is a choice. */
export function preferredMedia(media) {
  return media.find(([type]) => type === "application/json") ?? media[0];
}
