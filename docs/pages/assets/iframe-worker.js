// Browsers start no worker from file://. There, the search runs in a hidden frame instead.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      this.inside = new Promise(resolve => {
        frame.addEventListener("load", () => this.run(url, frame.contentWindow, resolve), { once: true })
      })
      document.body.append(frame)
    }
    run(url, inside, resolve) {
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      script.src = url
      script.addEventListener("load", () => resolve(inside))
      inside.document.body.append(script)
    }
    async postMessage(data) {
      const inside = await this.inside
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }
  }
