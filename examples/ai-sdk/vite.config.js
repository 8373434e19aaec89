import { defineConfig } from "vite";

export default defineConfig({
  envPrefix: "AI_SDK_",
  esbuild: { jsx: "automatic" },
});
