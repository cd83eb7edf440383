import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/layout.css";
import "./style/parts.css";
import { App } from "./app";

const root = document.getElementById("app");
if (root) render(<App />, root);
