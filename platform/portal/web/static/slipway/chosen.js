// Hands over the files of an input; also those that were chosen before this script had come.
export function onChosen(id, take) {
  const input = document.getElementById(id);
  async function hand() {
    const files = [...input.files];
    if (!files.length) return;
    await take(files);
    input.value = ""; // the same file can be chosen again, and no form sends it a second time
  }
  input.addEventListener("change", hand);
  hand();
}
