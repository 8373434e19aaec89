/** Every word of the chat, in the languages it speaks. */

const en = {
  heading: "Ask us",
  conversation: "Conversation",
  greeting: "Ask in your own words.",
  suggestions: "People often ask",
  suggested: [
    "How long does delivery take?",
    "How do I return something?",
    "Can I change my order after placing it?",
    "Do you ship abroad?",
  ],
  placeholder: "Ask about an order, delivery, returns…",
  input: "Your question",
  send: "Send",
  stop: "Stop answering",
  retry: "Try again",
  newChat: "New chat",
  openChat: "Open chat",
  closeChat: "Close chat",
  latest: "Jump to the latest message",
  you: "You",
  answer: "Answer",
  thinking: "Writing an answer",
  state: {
    idle: "Offline",
    connecting: "Connecting…",
    online: "Connected",
    reconnecting: "Reconnecting…",
    closed: "Disconnected",
  },
  reconnecting: "The connection dropped. Reconnecting; your question is kept.",
  closed: (/** @type {number} */ code) => `The chat was closed by the server (code ${code}).`,
  connectAgain: "Connect again",
  source: { model: "AI answer", faq: "From our help pages", busy: "Busy" },
  basedOn: (/** @type {string} */ question) => `Based on: ${question}`,
  mark: {
    deadline: "Cut at the deadline",
    max_output_tokens: "Cut at its length limit",
    client: "Stopped",
    internal: "Failed",
  },
  failed: "Something went wrong while answering.",
  errors: {
    input_too_long: "That question is too long. Please shorten it.",
    rate_limited: "Too many questions in a short time. Please wait a moment.",
    queue_full: "Very many people are asking right now. Please try again in a moment.",
    too_many_inflight: "Please let the earlier answer finish first.",
  },
  facts: "How this answer was made",
  ttft: "First word after",
  total: "Whole answer",
  queue: "Waited in the queue",
  prefill: "Read the question",
  writing: "Wrote the answer",
  tokensIn: "Tokens read",
  cached: (/** @type {number} */ count) => `${count} from cache`,
  tokensOut: "Tokens written",
  model: "Model",
  seconds: "s",
  milliseconds: "ms",
};

/** @type {typeof en} */
const zh = {
  heading: "在线咨询",
  conversation: "对话",
  greeting: "想问什么，直接说就好。",
  suggestions: "大家常问",
  suggested: ["下单后多久能送到？", "怎么退货？", "下单之后还能修改订单吗？", "可以寄到国外吗？"],
  placeholder: "请输入问题：订单、配送、退换货……",
  input: "您的问题",
  send: "发送",
  stop: "停止回答",
  retry: "重试",
  newChat: "新对话",
  openChat: "打开咨询窗口",
  closeChat: "关闭咨询窗口",
  latest: "跳到最新消息",
  you: "您",
  answer: "回答",
  thinking: "正在回答",
  state: {
    idle: "离线",
    connecting: "正在连接…",
    online: "已连接",
    reconnecting: "正在重新连接…",
    closed: "连接已断开",
  },
  reconnecting: "连接已中断，正在重新连接；您的问题已保留。",
  closed: (code) => `服务器已关闭对话（代码 ${code}）。`,
  connectAgain: "重新连接",
  source: { model: "AI 回答", faq: "来自帮助中心", busy: "繁忙" },
  basedOn: (question) => `参考：${question}`,
  mark: {
    deadline: "已到时限，回答被截断",
    max_output_tokens: "已到长度上限，回答被截断",
    client: "已停止",
    internal: "出错",
  },
  failed: "回答时出了问题。",
  errors: {
    input_too_long: "问题太长了，请缩短后再试。",
    rate_limited: "提问太频繁了，请稍等片刻。",
    queue_full: "现在咨询的人很多，请稍后再试。",
    too_many_inflight: "请等上一个回答结束。",
  },
  facts: "这个回答是怎么来的",
  ttft: "首字用时",
  total: "总用时",
  queue: "排队",
  prefill: "读题",
  writing: "作答",
  tokensIn: "读入词元",
  cached: (count) => `其中缓存 ${count}`,
  tokensOut: "生成词元",
  model: "模型",
  seconds: "秒",
  milliseconds: "毫秒",
};

/** @typedef {typeof en} Strings */

const LANGUAGES = { en, zh };

/**
 * @param {(string | null | undefined)[]} wishes language tags, best first
 * @returns {{ language: "en" | "zh", strings: Strings }} the first that is spoken here, else English
 */
export function chooseLanguage(wishes) {
  for (const wish of wishes) {
    const language = wish?.toLowerCase().split("-")[0];
    if (language === "en" || language === "zh") return { language, strings: LANGUAGES[language] };
  }
  return { language: "en", strings: en };
}
