"use strict";
// Elements are made by these two functions and filled with text nodes, never with markup: what a
// model wrote cannot become part of the page.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// Signed, with three digits: rewards and advantages.
function signed(value) {
  if (value === null || value === undefined) return "\u2013";
  if (!isNumber(value)) return String(value);
  const text = Math.abs(value) < 0.0005 ? "0" : Math.abs(value).toFixed(3).replace(/\.?0+$/, "");
  return text === "0" ? "0" : (value < 0 ? "\u2212" : "+") + text;
}

// At most four significant digits: metrics.
function short(value) {
  if (!isNumber(value)) return value === null || value === undefined ? "\u2013" : String(value);
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) {
    return value.toExponential(2).replace("-", "\u2212");
  }
  return String(Number(value.toPrecision(4))).replace("-", "\u2212");
}

function percent(value) {
  return isNumber(value) ? (100 * value).toFixed(1) + " %" : "\u2013";
}

function plural(count, one, many) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

function roleOf(agent) {
  return agent.replace(/_\d+$/, "");
}
