import { defineConfig } from "vite";

// All of node that this file uses; its whole types are not worth a dependency.
declare const process: { env: Record<string, string | undefined> };

// The built files are committed and embedded in the binary, so their names are stable and nothing in them depends on
// the machine that built them.
export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true,
    // An inlined asset would be a data: address, which the content security policy refuses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      output: {
        entryFileNames: "assets/console.js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/console[extname]",
      },
    },
  },
  server: {
    port: 3450,
    strictPort: true,
    proxy: { "/api": process.env.TARN_URL ?? "http://127.0.0.1:3451" },
  },
});
